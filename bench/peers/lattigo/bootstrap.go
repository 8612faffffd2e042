package main

import (
	"fmt"
	"math"
	"math/rand"
	"runtime"

	"github.com/tuneinsight/lattigo/v6/circuits/ckks/bootstrapping"
	"github.com/tuneinsight/lattigo/v6/core/rlwe"
	"github.com/tuneinsight/lattigo/v6/schemes/ckks"
	"golang.org/x/sys/unix"
)

// bootstrapSet is one of Lattigo's default sets, by its name there, which says N, log QP, and the weights of
// the secret and of the ephemeral one.
type bootstrapSet struct {
	name   string
	scheme ckks.ParametersLiteral
	own    bootstrapping.ParametersLiteral
}

// bootstrapSets are the first of those of sparse and of dense secrets at N = 2^16, and the dense one at 2^15.
// What is left open of P would be longer than the name says, and beyond 128 bits at 2^15.
func bootstrapSets() []bootstrapSet {
	sparse, dense := bootstrapping.N16QP1546H192H32, bootstrapping.N16QP1767H32768H32
	small := bootstrapping.N15QP880H16384H32
	return []bootstrapSet{
		{"N15QP880H16384H32", small.SchemeParams, small.BootstrappingParams},
		{"N16QP1546H192H32", sparse.SchemeParams, sparse.BootstrappingParams},
		{"N16QP1767H32768H32", dense.SchemeParams, dense.BootstrappingParams},
	}
}

type bootstrapResult struct {
	Library   string  `json:"library"`
	Operation string  `json:"operation"`
	Set       string  `json:"set"`
	Degree    int     `json:"degree"`
	Slots     int     `json:"slots"`
	LogQP     float64 `json:"log_qp"`
	Levels    int     `json:"levels_left"`
	ScaleLog2 float64 `json:"scale_log2"`
	MeanBits  float64 `json:"mean_bits"`
	WorstBits float64 `json:"worst_bits"`
	KeyBytes  int     `json:"key_bytes"`
	PeakBytes int64   `json:"peak_bytes"`
	Ms        float64 `json:"ms"`
	BestMs    float64 `json:"best_ms"`
	Runs      int     `json:"runs"`
}

// measureBootstrap times a set's bootstrap of random real numbers from -1 to 1 in all slots. Bits are -log2 of
// the mean and of the largest error of a slot's real part.
func measureBootstrap(s bootstrapSet, runs int) (bootstrapResult, error) {
	none := bootstrapResult{}
	params, err := ckks.NewParametersFromLiteral(s.scheme)
	if err != nil {
		return none, err
	}
	literal := s.own
	literal.LogP = s.scheme.LogP
	own, err := bootstrapping.NewParametersFromLiteral(params, literal)
	if err != nil {
		return none, err
	}
	secret := rlwe.NewKeyGenerator(params).GenSecretKeyNew()
	keys, _, err := own.GenEvaluationKeys(secret)
	if err != nil {
		return none, err
	}
	eval, err := bootstrapping.NewEvaluator(own, keys)
	if err != nil {
		return none, err
	}
	random := rand.New(rand.NewSource(1))
	values := make([]complex128, params.MaxSlots())
	for i := range values {
		values[i] = complex(2*random.Float64()-1, 0)
	}
	encoder := ckks.NewEncoder(params)
	plain := ckks.NewPlaintext(params, 0)
	if err := encoder.Encode(values, plain); err != nil {
		return none, err
	}
	cipher, err := rlwe.NewEncryptor(params, secret).EncryptNew(plain)
	if err != nil {
		return none, err
	}
	var refreshed *rlwe.Ciphertext
	taken := times(runs, func() error {
		// It works in its input's place.
		refreshed, err = eval.Bootstrap(cipher.CopyNew())
		return err
	})
	found := make([]complex128, params.MaxSlots())
	if err := encoder.Decode(rlwe.NewDecryptor(params, secret).DecryptNew(refreshed), found); err != nil {
		return none, err
	}
	sum, worst := 0.0, 0.0
	for i, value := range found {
		off := math.Abs(real(value) - real(values[i]))
		sum, worst = sum+off, math.Max(worst, off)
	}
	mean := -math.Log2(sum / float64(len(found)))
	// Written so that what is no number is refused.
	if !(mean >= 10 && -math.Log2(worst) >= 5) {
		return none, fmt.Errorf("%s: %.1f mean bits came back", s.name, mean)
	}
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return none, err
	}
	return bootstrapResult{
		"lattigo v6.2.0", "bootstrap", s.name, params.N(), params.MaxSlots(),
		own.BootstrappingParameters.LogQP(), refreshed.Level(), refreshed.LogScale(), mean,
		-math.Log2(worst), keys.BinarySize(), usage.Maxrss * 1024, taken[0], taken[1], runs,
	}, nil
}

// measureBootstraps measures the set of a name, or all.
func measureBootstraps(runs int, name string, say func(any)) {
	isKnown := false
	for _, s := range bootstrapSets() {
		if name != "" && name != s.name {
			continue
		}
		isKnown = true
		found, err := measureBootstrap(s, runs)
		if err != nil {
			fail(err)
		}
		say(found)
		// Its keys are gigabytes.
		runtime.GC()
	}
	if !isKnown {
		fail(fmt.Errorf("-set %s: there is no such set", name))
	}
}
