//! How long passes take a device, by its own events.

use std::sync::Arc;

use crate::{Device, Error, Event, Stream};

/// The moments at which each of several passes began and ended, in the order of their issue.
#[derive(Default)]
pub(crate) struct Clock {
    passes: Vec<(Event, Event)>,
}

impl Clock {
    /// Puts a pass's end in its stream, behind the ends of those before it. `began` was recorded before
    /// the pass's first work.
    pub(crate) fn ended(
        &mut self,
        device: &Arc<dyn Device>,
        stream: Stream,
        began: Event,
    ) -> Result<(), Error> {
        if let Some((_, before)) = self.passes.last() {
            // Passes of two streams may overtake each other.
            device.wait(stream, *before)?;
        }
        self.passes.push((began, device.record(stream)?));
        Ok(())
    }

    /// Milliseconds from the first pass's beginning to the last one's end; 0 without passes.
    pub(crate) fn milliseconds(self, device: &Arc<dyn Device>) -> Result<f64, Error> {
        let (began, mut ended): (Vec<_>, Vec<_>) = self.passes.into_iter().unzip();
        let Some(last) = ended.pop() else { return Ok(0.0) };
        let all = device.elapsed_ms(began[0], last)?;
        // Asked of the others so that the device forgets them.
        for (began, ended) in began[1..].iter().zip(ended) {
            device.elapsed_ms(*began, ended)?;
        }
        Ok(f64::from(all))
    }
}

#[cfg(test)]
mod tests {
    use hushtable_pir::dpf::{Domain, Group, Key, KeyPair};
    use hushtable_pir::{Backend, TableShape};
    use hushtable_prg::{Platform, Prg, PrgKind};

    use crate::shim::Shim;
    use crate::{Error, GpuEngine, GpuSpec};

    fn keys(rows: u64, count: u64, group: Group) -> Vec<Key> {
        let domain = Domain::new(rows, group).expect("rows");
        let prg = Prg::new(PrgKind::ChaCha12, Platform::detect());
        let key = |id| KeyPair::generate(prg, domain, id % rows).expect("a key").left;
        (0..count).map(key).collect()
    }

    #[test]
    fn what_is_timed_is_what_is_answered() {
        let shape = TableShape::new(300, 5).expect("a shape");
        let rows: Vec<u8> = (0..1500).map(|i| (i * 7 % 251) as u8).collect();
        let spec = GpuSpec { batch_keys_max: 2, ..GpuSpec::default() };
        let engine = GpuEngine::from_rows(Shim::new(2), shape, &rows, &spec).expect("an engine");
        // One pass, and passes of two, of which two are at work at once.
        for count in [1, 5] {
            let keys = keys(300, count, Group::Bits);
            let mut answers = [vec![0; keys.len() * 5], vec![1; keys.len() * 5]];
            engine.answer(&keys, &mut answers[0]).expect("answered");
            let ms = engine.answer_timed(&keys, &mut answers[1]).expect("timed");
            assert_eq!(answers[0], answers[1]);
            assert!(ms > 0.0 && ms.is_finite(), "{ms}");
        }
        let mixed: Vec<Key> =
            [keys(300, 1, Group::Bits), keys(300, 1, Group::Z8)].into_iter().flatten().collect();
        let refused = engine.answer_timed(&mixed, &mut [0; 10]).expect_err("two kinds");
        assert!(matches!(refused, Error::Geometry { .. }), "{refused}");
        assert!(engine.answer_timed(&[], &mut []).is_err());
        let other = keys(299, 1, Group::Bits);
        assert!(matches!(engine.answer_timed(&other, &mut [0; 5]), Err(Error::Pir(_))));
    }
}
