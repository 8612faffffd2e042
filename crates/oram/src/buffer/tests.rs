use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug, PartialEq)]
struct Sums {
    row: Vec<u8>,
    gradient: Vec<f32>,
    weight: f32,
    contributions: u32,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_buffer_is_an_array_of_rows_and_sums(
        capacity in 1usize..150,
        row_bytes in 1usize..50,
        dim in 1usize..10,
        share in 0.0f64..=1.0,
        steps in prop::collection::vec((any::<u32>(), -100i8..100, 0..4u8), 0..200),
    ) {
        let mut buffer = BufferOram::new(capacity, row_bytes, dim, &Key::random().unwrap()).unwrap();
        let inserted = (capacity as f64 * share) as usize;
        let mut model = Vec::new();
        for rank in 0..inserted {
            let row: Vec<u8> = (0..row_bytes).map(|i| (rank * 31 + i) as u8).collect();
            buffer.insert(rank as u32, &row).unwrap();
            model.push(Sums { row, gradient: vec![0.0; dim], weight: 0.0, contributions: 0 });
        }
        for (rank, value, kind) in steps {
            // Ranks that are not there, declared or not, and dummies among them.
            let rank = if kind == 0 { DUMMY - rank % 2 } else { rank % (capacity as u32 + 2) };
            let there = model.get_mut(rank as usize);
            if kind < 2 {
                let mut out = vec![1; row_bytes];
                buffer.row(rank, &mut out).unwrap();
                prop_assert_eq!(out, there.map_or(vec![0; row_bytes], |sums| sums.row.clone()));
            } else {
                // Small integers, whose sums are exact in any order.
                let gradient: Vec<f32> = (0..dim).map(|i| f32::from(value) + i as f32).collect();
                buffer.add(rank, &gradient, f32::from(value)).unwrap();
                if let Some(sums) = there {
                    sums.gradient.iter_mut().zip(&gradient).for_each(|(sum, term)| *sum += term);
                    sums.weight += f32::from(value);
                    sums.contributions += 1;
                }
            }
        }
        prop_assert_eq!(buffer.rows(), inserted);
        let mut found = Vec::new();
        let mut ranks = Vec::new();
        buffer.drain(|drained| {
            ranks.push(drained.rank as usize);
            found.push(Sums {
                row: drained.row.to_vec(),
                gradient: drained.gradient.to_vec(),
                weight: drained.weight,
                contributions: drained.contributions,
            });
        }).unwrap();
        prop_assert!(ranks.into_iter().eq(0..inserted));
        prop_assert_eq!(found, model);
    }
}

#[test]
fn a_full_buffer_serves_a_round() {
    let mut buffer = BufferOram::new(3000, 64, 16, &Key::random().unwrap()).unwrap();
    for rank in 0..3000u32 {
        buffer.insert(rank, &rank.to_le_bytes().repeat(16)).unwrap();
    }
    let mut row = [0; 64];
    for step in 0..30_000u32 {
        let rank = step.wrapping_mul(0x9e37_79b9) % 3000;
        if step % 2 == 0 {
            buffer.row(rank, &mut row).unwrap();
            assert_eq!(row[..], rank.to_le_bytes().repeat(16)[..]);
        } else {
            buffer.add(rank, &[rank as f32; 16], 1.0).unwrap();
        }
    }
    let mut total = 0;
    buffer
        .drain(|drained| {
            assert_eq!(drained.weight, drained.contributions as f32);
            assert_eq!(drained.gradient, [drained.rank as f32 * drained.weight; 16]);
            total += drained.contributions;
        })
        .unwrap();
    assert_eq!(total, 15_000);
}

#[test]
fn rows_out_of_order_or_of_another_size_are_refused() {
    let mut buffer = BufferOram::new(2, 8, 2, &Key::random().unwrap()).unwrap();
    let refused = buffer.insert(1, &[0; 8]);
    assert!(matches!(refused, Err(MemoryError::Rank { rank: 1, expected: 0, capacity: 2 })));
    assert!(matches!(buffer.insert(0, &[0; 7]), Err(MemoryError::Length { length: 7, .. })));
    buffer.insert(0, &[1; 8]).unwrap();
    buffer.insert(1, &[2; 8]).unwrap();
    assert!(matches!(buffer.insert(2, &[3; 8]), Err(MemoryError::Rank { expected: 2, .. })));
    assert!(matches!(buffer.row(0, &mut [0; 9]), Err(MemoryError::Length { expected: 8, .. })));
    assert!(matches!(buffer.add(0, &[0.0], 1.0), Err(MemoryError::Length { expected: 2, .. })));
    assert!(matches!(
        BufferOram::new(0, 8, 2, &Key::random().unwrap()),
        Err(MemoryError::Capacity { capacity: 0 })
    ));
    assert!(matches!(
        BufferOram::new(2, 8, usize::MAX, &Key::random().unwrap()),
        Err(MemoryError::PayloadBytes { .. })
    ));
}
