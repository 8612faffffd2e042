//! How one convolution lies in polynomials.
//!
//! The output is cut into tiles; a tile's input is cut into phases, one for each place of the stride's
//! lattice, which are taken as channels of a convolution of stride 1 (its kernel's taps of that phase). A
//! polynomial holds some such channels of a tile, plane after plane, row after row:
//! x̂ = Σ x[c, i, j] · X^(c·P + i·W + j), P = H·W numbers a plane; weights, in reverse,
//! ŵ = Σ w[o, c, a, b] · X^(o·C·P + (C − 1 − c)·P + (h − 1 − a)·W + (w − 1 − b)). The output (o, y, x) is then
//! the product's coefficient o·C·P + (C − 1)·P + (y + h − 1)·W + (x + w − 1): no other product of an input and
//! a weight falls there, nor does what wraps around at X^N = −1, as long as O·C·P ≤ N (Huang et al.,
//! "Cheetah", USENIX Security 2022, section 3.1).

use std::ops::Range;

use super::super::program::Convolution;

/// What a layout's search knows of a set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// N.
    pub degree: usize,
    /// Primes of Q.
    pub limbs: usize,
    /// Bytes of an upload.
    pub upload_bytes: usize,
    /// Bytes of an answer without coefficients.
    pub mask_bytes: usize,
    /// Bits of an answer's coefficient.
    pub body_bits: usize,
    /// Nanoseconds that an upload takes both parties, for 1000 numbers of each prime.
    pub upload_kilo: u64,
}

/// Most bytes of an upload's chunk, and of a unit's reply.
pub(super) const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// A convolution's layout.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    convolution: Convolution,
    /// Phases of the stride that the kernel has taps in.
    phases: [usize; 2],
    /// Rows and columns of a phase's kernel.
    kernel: [usize; 2],
    /// Rows and columns of outputs of a tile.
    tile: [usize; 2],
    /// Tiles from top to bottom and from left to right.
    tiles: [usize; 2],
    /// Channels (of phases) of a polynomial.
    channels: usize,
    /// Polynomials of a tile's input.
    channel_groups: usize,
    /// Output planes of a polynomial.
    outputs: usize,
    /// Polynomials of a tile's output.
    output_groups: usize,
    /// Uploads of a chunk.
    chunk: usize,
    /// Tiles and output groups of a unit.
    unit: [usize; 2],
}

impl Layout {
    /// The cheapest layout; None for a convolution that fits no polynomial.
    pub(super) fn search(convolution: Convolution, costs: &Costs) -> Option<Self> {
        let [rows, columns] = convolution.stride;
        let phases = [rows.min(convolution.kernel[0]), columns.min(convolution.kernel[1])];
        let kernel =
            [convolution.kernel[0].div_ceil(rows), convolution.kernel[1].div_ceil(columns)];
        let output = convolution.output();
        let all_channels = convolution.input.channels * phases[0] * phases[1];
        let mut best: Option<(u64, Self)> = None;
        for tile_rows in parts(output.height) {
            for tile_columns in parts(output.width) {
                let tile = [tile_rows, tile_columns];
                let plane = (tile[0] + kernel[0] - 1) * (tile[1] + kernel[1] - 1);
                if plane > costs.degree {
                    continue;
                }
                for channels in parts(all_channels) {
                    let room = costs.degree / (channels * plane).max(1);
                    if room == 0 {
                        continue;
                    }
                    let output_groups = output.channels.div_ceil(room);
                    let mut layout = Self {
                        convolution,
                        phases,
                        kernel,
                        tile,
                        tiles: [output.height.div_ceil(tile[0]), output.width.div_ceil(tile[1])],
                        channels,
                        channel_groups: all_channels.div_ceil(channels),
                        outputs: output.channels.div_ceil(output_groups),
                        output_groups,
                        chunk: 1,
                        unit: [1, 1],
                    };
                    layout.cut(costs);
                    let cost = layout.cost(costs);
                    if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                        best = Some((cost, layout));
                    }
                }
            }
        }
        best.map(|(_, layout)| layout)
    }

    /// Cuts messages.
    fn cut(&mut self, costs: &Costs) {
        let most = (MESSAGE_BYTES_MAX / costs.upload_bytes).max(1);
        let chunks = self.uploads().div_ceil(most);
        self.chunk = self.uploads().div_ceil(chunks);
        let bits = self.outputs * self.tile[0] * self.tile[1] * costs.body_bits;
        let answer_bytes = costs.mask_bytes + bits.div_ceil(8);
        let most = (MESSAGE_BYTES_MAX / answer_bytes).max(1);
        let tiles = self.tiles();
        let blocks = tiles.div_ceil(most);
        self.unit[0] = tiles.div_ceil(blocks);
        let groups = (most / self.unit[0]).max(1);
        let blocks = self.output_groups.div_ceil(groups);
        self.unit[1] = self.output_groups.div_ceil(blocks);
    }

    /// What a layout takes, in nanoseconds of both parties and of a link of 2 Gbit/s. The same integers on
    /// every machine: both parties must find the same layout.
    fn cost(&self, costs: &Costs) -> u64 {
        let work = self.work();
        let size = (costs.degree * costs.limbs) as u64;
        let of = |count: usize, per_kilo: u64| count as u64 * size * per_kilo / 1000;
        let bytes = self.uploads() * costs.upload_bytes
            + work.answers * costs.mask_bytes
            + self.convolution.output().count() * costs.body_bits / 8;
        of(work.uploads, costs.upload_kilo)
            + of(work.answers, 40_000)
            + of(work.products, 400)
            + of(work.transforms, 2_200)
            + bytes as u64 * 4
    }

    /// What is computed.
    pub(super) fn work(&self) -> Work {
        let answers = self.tiles() * self.output_groups;
        let tile_blocks = self.tiles().div_ceil(self.unit[0]);
        Work {
            uploads: self.uploads(),
            answers,
            products: answers * self.channel_groups,
            transforms: tile_blocks * self.output_groups * self.channel_groups,
        }
    }

    pub(super) fn convolution(&self) -> &Convolution {
        &self.convolution
    }

    /// Tiles.
    pub(super) fn tiles(&self) -> usize {
        self.tiles[0] * self.tiles[1]
    }

    /// Polynomials of a tile's input.
    pub(super) fn channel_groups(&self) -> usize {
        self.channel_groups
    }

    /// Polynomials of a tile's output.
    pub(super) fn output_groups(&self) -> usize {
        self.output_groups
    }

    /// Polynomials of the input: tile by tile, group by group.
    pub(super) fn uploads(&self) -> usize {
        self.tiles() * self.channel_groups
    }

    /// Chunks of uploads.
    pub(super) fn chunks(&self) -> usize {
        self.uploads().div_ceil(self.chunk)
    }

    /// The uploads of a chunk.
    pub(super) fn chunk(&self, chunk: usize) -> Range<usize> {
        let start = chunk * self.chunk;
        start..(start + self.chunk).min(self.uploads())
    }

    /// Units of answers.
    pub(super) fn units(&self) -> usize {
        self.tiles().div_ceil(self.unit[0]) * self.output_groups.div_ceil(self.unit[1])
    }

    /// The tiles and output groups of a unit, whose answers are tile by tile.
    pub(super) fn unit(&self, unit: usize) -> (Range<usize>, Range<usize>) {
        let blocks = self.tiles().div_ceil(self.unit[0]);
        let part = |index: usize, size: usize, end: usize| {
            let start = index * size;
            start..(start + size).min(end)
        };
        (
            part(unit % blocks, self.unit[0], self.tiles()),
            part(unit / blocks, self.unit[1], self.output_groups),
        )
    }

    /// Rows and columns of a plane of a polynomial.
    fn plane(&self) -> [usize; 2] {
        [self.tile[0] + self.kernel[0] - 1, self.tile[1] + self.kernel[1] - 1]
    }

    /// The channels of a group: input channel, and row and column of the phase.
    fn channels_of(&self, group: usize) -> impl Iterator<Item = (usize, [usize; 2])> + use<> {
        let [rows, columns] = self.phases;
        let all = self.convolution.input.channels * rows * columns;
        let start = group * self.channels;
        (start..(start + self.channels).min(all))
            .map(move |index| (index / (rows * columns), [index / columns % rows, index % columns]))
    }

    /// The first output row and column of a tile.
    fn corner(&self, tile: usize) -> [usize; 2] {
        [tile / self.tiles[1] * self.tile[0], tile % self.tiles[1] * self.tile[1]]
    }

    /// The numbers of one upload's polynomial, from the whole input; `out` is zero at first.
    pub(super) fn pack(&self, upload: usize, input: &[u64], out: &mut [u64]) {
        let (tile, group) = (upload / self.channel_groups, upload % self.channel_groups);
        let Convolution { input: shape, stride, pad, .. } = self.convolution;
        let [rows, columns] = self.plane();
        let corner = self.corner(tile);
        for (index, (channel, phase)) in self.channels_of(group).enumerate() {
            let plane = &input[channel * shape.height * shape.width..];
            for row in 0..rows {
                let y = ((corner[0] + row) * stride[0] + phase[0]).wrapping_sub(pad[0]);
                if y >= shape.height {
                    continue;
                }
                let from = &plane[y * shape.width..][..shape.width];
                let to = &mut out[(index * rows + row) * columns..][..columns];
                for (column, to) in to.iter_mut().enumerate() {
                    let x = ((corner[1] + column) * stride[1] + phase[1]).wrapping_sub(pad[1]);
                    if x < shape.width {
                        *to = from[x];
                    }
                }
            }
        }
    }

    /// The weights that multiply an input group for an output group: coefficient and index in the
    /// convolution's weights.
    pub(super) fn taps(&self, output: usize, group: usize, mut each: impl FnMut(usize, usize)) {
        let Convolution { input, stride, kernel, .. } = self.convolution;
        let [rows, columns] = self.plane();
        let outputs = self.outputs_of(output);
        for (place, plane) in outputs.enumerate() {
            for (index, (channel, phase)) in self.channels_of(group).enumerate() {
                let start = (place * self.channels + self.channels - 1 - index) * rows * columns;
                for row in 0..self.kernel[0] {
                    let a = row * stride[0] + phase[0];
                    for column in 0..self.kernel[1] {
                        let b = column * stride[1] + phase[1];
                        if a < kernel[0] && b < kernel[1] {
                            let at = start
                                + (self.kernel[0] - 1 - row) * columns
                                + (self.kernel[1] - 1 - column);
                            let weight = ((plane * input.channels + channel) * kernel[0] + a)
                                * kernel[1]
                                + b;
                            each(at, weight);
                        }
                    }
                }
            }
        }
    }

    /// The output planes of a group.
    pub(super) fn outputs_of(&self, group: usize) -> Range<usize> {
        let start = group * self.outputs;
        start..(start + self.outputs).min(self.convolution.outputs)
    }

    /// The outputs of an answer: coefficient and index in the output.
    pub(super) fn outputs(&self, tile: usize, group: usize) -> (Vec<usize>, Vec<usize>) {
        let output = self.convolution.output();
        let [rows, columns] = self.plane();
        let corner = self.corner(tile);
        let height = self.tile[0].min(output.height - corner[0]);
        let width = self.tile[1].min(output.width - corner[1]);
        let (mut coefficients, mut indices) = (Vec::new(), Vec::new());
        for (place, plane) in self.outputs_of(group).enumerate() {
            let start = (place * self.channels + self.channels - 1) * rows * columns;
            for y in 0..height {
                for x in 0..width {
                    let row = y + self.kernel[0] - 1;
                    coefficients.push(start + row * columns + x + self.kernel[1] - 1);
                    let at = (plane * output.height + corner[0] + y) * output.width;
                    indices.push(at + corner[1] + x);
                }
            }
        }
        (coefficients, indices)
    }

    /// How many outputs an answer has.
    pub(super) fn outputs_count(&self, tile: usize, group: usize) -> usize {
        let output = self.convolution.output();
        let corner = self.corner(tile);
        let height = self.tile[0].min(output.height - corner[0]);
        let width = self.tile[1].min(output.width - corner[1]);
        self.outputs_of(group).len() * height * width
    }
}

/// What a convolution takes, in operations on polynomials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "plain counts")]
pub struct Work {
    /// Encryptions.
    pub uploads: usize,
    /// Answers: re-randomised, sent, opened.
    pub answers: usize,
    /// Products of a plaintext and a ciphertext.
    pub products: usize,
    /// Plaintexts that are transformed.
    pub transforms: usize,
}

/// The sizes of parts that `length` can be cut into, each once, the largest first.
fn parts(length: usize) -> impl Iterator<Item = usize> {
    let mut next = Some(length.max(1));
    std::iter::from_fn(move || {
        let size = next?;
        // The least number of parts of less than `size`.
        let count = (size > 1).then(|| length.div_ceil(size - 1).max(1));
        next = count.map(|count| length.div_ceil(count));
        Some(size)
    })
}
