// Times Lattigo's CKKS operations on one core, for bench/peers/run.py. Prints one line of JSON an
// operation: {"library", "operation", "degree", "limbs", "level", "ms", "best_ms", "runs"}; with -bootstrap,
// of bootstraps alone, with their sets, levels left, bits, key bytes and peak memory.
//
// ms is the median over runs of the process's CPU time for one operation, which another process on
// the same core does not lengthen as it does wall time; best_ms is the least.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"time"

	"github.com/tuneinsight/lattigo/v6/circuits/ckks/lintrans"
	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"
	"golang.org/x/sys/unix"
)

// set is a parameter set of 128 bits: log QP is at most 218, 438 and 881 for these degrees.
type set struct {
	logN     int
	logQ     []int
	logP     []int
	scale    int
	level    int // of the transform
	diagonal int // how many of the transform; 0 for none
}

func repeat(first, rest, count int) []int {
	bits := make([]int, count)
	for i := range bits {
		bits[i] = rest
	}
	bits[0] = first
	return bits
}

var sets = []set{
	{logN: 13, logQ: repeat(45, 37, 4), logP: []int{51}, scale: 37, level: 3, diagonal: 512},
	{logN: 14, logQ: repeat(50, 40, 9), logP: []int{60}, scale: 40},
	{logN: 15, logQ: repeat(60, 40, 16), logP: []int{61, 61, 61}, scale: 40, level: 5, diagonal: 512},
}

type result struct {
	Library   string  `json:"library"`
	Operation string  `json:"operation"`
	Degree    int     `json:"degree"`
	Limbs     int     `json:"limbs"`
	Level     int     `json:"level"`
	Diagonals int     `json:"diagonals,omitempty"`
	LogQP     float64 `json:"log_qp"`
	Ms        float64 `json:"ms"`
	BestMs    float64 `json:"best_ms"`
	Runs      int     `json:"runs"`
}

func cpu() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &now); err != nil {
		fail(err)
	}
	return time.Duration(now.Nano())
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}

// times is the median and the least of one call of what, of runs after one that is not counted.
func times(runs int, what func() error) [2]float64 {
	if err := what(); err != nil {
		fail(err)
	}
	taken := make([]float64, runs)
	for i := range taken {
		began := cpu()
		if err := what(); err != nil {
			fail(err)
		}
		taken[i] = float64((cpu() - began).Nanoseconds()) / 1e6
	}
	sort.Float64s(taken)
	return [2]float64{taken[runs/2], taken[0]}
}

func measure(s set, runs int, say func(result)) error {
	params, err := ckks.NewParametersFromLiteral(ckks.ParametersLiteral{
		LogN: s.logN, LogQ: s.logQ, LogP: s.logP, LogDefaultScale: s.scale,
	})
	if err != nil {
		return err
	}
	top := params.MaxLevel()
	keygen := rlwe.NewKeyGenerator(params)
	secret := keygen.GenSecretKeyNew()
	relinearisation := keygen.GenRelinearizationKeyNew(secret)
	encoder := ckks.NewEncoder(params)
	encryptor := rlwe.NewEncryptor(params, secret)
	random := rand.New(rand.NewSource(1))
	values := make([]complex128, params.MaxSlots())
	for i := range values {
		values[i] = complex(2*random.Float64()-1, 0)
	}
	encrypt := func(level int) (*rlwe.Ciphertext, error) {
		plain := ckks.NewPlaintext(params, level)
		if err := encoder.Encode(values, plain); err != nil {
			return nil, err
		}
		return encryptor.EncryptNew(plain)
	}
	report := func(operation string, level, diagonals, runs int, ms [2]float64) {
		say(result{"lattigo v6.2.0", operation, params.N(), top + 1, level, diagonals,
			params.LogQP(), ms[0], ms[1], runs})
	}

	rotation := keygen.GenGaloisKeyNew(params.GaloisElement(1), secret)
	eval := ckks.NewEvaluator(params, rlwe.NewMemEvaluationKeySet(relinearisation, rotation))
	cipher, err := encrypt(top)
	if err != nil {
		return err
	}
	rotated := ckks.NewCiphertext(params, 1, top)
	report("rotate", top, 0, runs, times(runs, func() error {
		return eval.Rotate(cipher, 1, rotated)
	}))
	product := ckks.NewCiphertext(params, 1, top)
	rescaled := ckks.NewCiphertext(params, 1, top-1)
	report("multiply", top, 0, runs, times(runs, func() error {
		if err := eval.MulRelin(cipher, cipher, product); err != nil {
			return err
		}
		return eval.Rescale(product, rescaled)
	}))
	report("rescale", top, 0, runs, times(runs, func() error {
		return eval.Rescale(product, rescaled)
	}))
	if s.diagonal == 0 {
		return nil
	}

	diagonals := make(lintrans.Diagonals[complex128])
	for i := 0; i < s.diagonal; i++ {
		diagonal := make([]complex128, params.MaxSlots())
		for j := range diagonal {
			diagonal[j] = complex(2*random.Float64()-1, 0)
		}
		diagonals[i] = diagonal
	}
	transform := lintrans.NewTransformation(params, lintrans.Parameters{
		DiagonalsIndexList:        diagonals.DiagonalsIndexList(),
		LevelQ:                    s.level,
		LevelP:                    params.MaxLevelP(),
		Scale:                     rlwe.NewScale(params.Q()[s.level]),
		LogDimensions:             params.LogMaxDimensions(),
		LogBabyStepGiantStepRatio: 1,
	})
	if err := lintrans.Encode(encoder, diagonals, transform); err != nil {
		return err
	}
	keys := keygen.GenGaloisKeysNew(transform.GaloisElements(params), secret)
	evaluator := lintrans.NewEvaluator(eval.WithKey(rlwe.NewMemEvaluationKeySet(relinearisation, keys...)))
	input, err := encrypt(s.level)
	if err != nil {
		return err
	}
	output := ckks.NewCiphertext(params, 1, s.level)
	few := max(1, runs/4)
	report("transform", s.level, s.diagonal, few, times(few, func() error {
		return evaluator.Evaluate(input, transform, output)
	}))
	return nil
}

func main() {
	runs := flag.Int("runs", 20, "counted runs of each operation")
	degree := flag.Int("degree", 0, "only this ring degree: 8192, 16384 or 32768")
	bootstrap := flag.Bool("bootstrap", false, "bootstraps, some 8 GB of keys each, and nothing else")
	name := flag.String("set", "", "only the bootstrap of this set")
	flag.Parse()
	if *runs < 1 {
		fail(fmt.Errorf("-runs %d: at least 1", *runs))
	}
	encoder := json.NewEncoder(os.Stdout)
	say := func(line any) {
		if err := encoder.Encode(line); err != nil {
			fail(err)
		}
	}
	if *bootstrap {
		measureBootstraps(*runs, *name, say)
		return
	}
	for _, s := range sets {
		if *degree != 0 && *degree != 1<<s.logN {
			continue
		}
		if err := measure(s, *runs, func(r result) { say(r) }); err != nil {
			fail(err)
		}
	}
}
