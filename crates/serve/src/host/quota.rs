//! What peers hold of something that a server has only so much of: sessions, places, bytes.
//!
//! While there is room, a peer may have all of it. Once it is full, whoever asks gets its part from whoever has the
//! most, as long as that is more than the asker has then; nobody else loses anything, and whoever has the most itself
//! is refused, but for what it has left alone for a while itself. So a peer that takes all it can keeps nobody out, and one that asks for little loses nothing to it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tonic::Extensions;

use crate::batch::Origin;
use crate::host::budget::{Reservation, origin_of};
use crate::host::tls::PeerCertificate;

/// Whose a part is: a client's by its certificate, where it showed one, else a peer's by its address.
/// Zero is nobody's: what was found at a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Holder(u64);

impl Holder {
    /// Who makes a request.
    pub fn of(extensions: &Extensions) -> Self {
        match extensions.get::<PeerCertificate>() {
            Some(certificate) => Self(certificate.number()),
            None => {
                let reservation = extensions.get::<Arc<Reservation>>();
                Self::of_origin(origin_of(reservation.map(AsRef::as_ref)))
            }
        }
    }

    /// The peer that a request comes from, whatever its certificate: as queues know it.
    pub fn of_origin(origin: Origin) -> Self {
        Self(origin.peer)
    }

    /// The one of a number.
    #[cfg(test)]
    pub fn of_number(number: u64) -> Self {
        Self(number)
    }
}

/// The parts, by their names `K`.
pub(crate) struct Quota<K> {
    amount_max: u64,
    /// What a holder has left alone for longer gives room to what it asks for.
    rest_max: Duration,
    amount: u64,
    parts: HashMap<K, Part>,
    held: HashMap<Holder, u64>,
}

struct Part {
    holder: Holder,
    amount: u64,
    /// Whether its holder has done anything of use with it.
    is_used: bool,
    has_come: bool,
    touched: Instant,
}

/// There is no room, and whoever asks has as much as others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl<K: Clone + Eq + Hash> Quota<K> {
    /// Of `amount_max` in all.
    pub fn new(amount_max: u64) -> Self {
        let (rest_max, parts, held) = (Duration::MAX, HashMap::new(), HashMap::new());
        Self { amount_max, rest_max, amount: 0, parts, held }
    }

    /// The same, where a holder's own part gives way that has rested for longer than `rest_max`.
    pub fn resting(self, rest_max: Duration) -> Self {
        Self { rest_max, ..self }
    }

    /// Gives `holder` a part of that name, in place of what the name had. Names the parts that had to go for it, which
    /// are not counted any more: their holders lose them.
    ///
    /// # Errors
    /// [`Full`]: nothing has changed.
    pub fn enter(
        &mut self,
        name: K,
        holder: Holder,
        amount: u64,
        now: Instant,
    ) -> Result<Vec<K>, Full> {
        let going = self.going(&name, holder, amount, now).ok_or(Full)?;
        going.iter().chain([&name]).for_each(|going| self.leave(going));
        self.parts
            .insert(name, Part { holder, amount, is_used: false, has_come: false, touched: now });
        *self.held.entry(holder).or_default() += amount;
        self.amount += amount;
        Ok(going)
    }

    /// Whether the part of that name is `holder`'s to take: nobody's, its own, or one of a holder's that has more
    /// even then. For parts that are asked for by name, such as the places of a round.
    pub fn gives_way(&self, name: &K, holder: Holder) -> bool {
        self.parts.get(name).is_none_or(|part| {
            part.holder == holder || self.of(part.holder) > self.of(holder) + part.amount
        })
    }

    /// Whose the part of that name is.
    pub fn holder(&self, name: &K) -> Option<Holder> {
        self.parts.get(name).map(|part| part.holder)
    }

    /// Whether somebody has more than one part of `amount`: whoever has none could take one.
    pub fn has_much(&self, amount: u64) -> bool {
        self.held.values().any(|held| *held > amount)
    }

    /// Whether [`enter`](Self::enter) would give this part.
    pub fn has_room(&self, name: &K, holder: Holder, amount: u64, now: Instant) -> bool {
        self.going(name, holder, amount, now).is_some()
    }

    /// Which parts would have to go for one.
    fn going(&self, name: &K, holder: Holder, amount: u64, now: Instant) -> Option<Vec<K>> {
        let before = self.parts.get(name).map_or(0, |part| part.amount);
        let of_own = |part: &Part| part.holder == holder;
        let own_before = self.parts.get(name).filter(|part| of_own(part)).map_or(0, |_| before);
        let own = self.of(holder) - own_before + amount;
        let needed = (self.amount - before + amount).saturating_sub(self.amount_max);
        let rested = self.rested(name, holder, needed, now);
        rested.or_else(|| self.givers(name, holder, own, needed))
    }

    /// Parts of `needed` in all that the asker itself has left alone.
    fn rested(&self, name: &K, asker: Holder, needed: u64, now: Instant) -> Option<Vec<K>> {
        let own = self.parts.iter().filter(|(key, part)| {
            let rested = now.saturating_duration_since(part.touched);
            part.holder == asker && *key != name && rested > self.rest_max
        });
        let mut own: Vec<_> = own.collect();
        own.sort_by_key(|(_, part)| part.touched);
        let (mut going, mut found) = (Vec::new(), 0);
        let mut own = own.into_iter();
        while found < needed {
            let (key, part) = own.next()?;
            found += part.amount;
            going.push(key.clone());
        }
        Some(going)
    }

    /// Parts of `needed` in all, each of whoever then has the most, which is more than `own`.
    fn givers(&self, name: &K, asker: Holder, own: u64, needed: u64) -> Option<Vec<K>> {
        let mut held = self.held.clone();
        let (mut going, mut found) = (Vec::new(), 0);
        while found < needed {
            let others = held.iter().filter(|(holder, _)| **holder != asker);
            let (&most, &amount) = others.max_by_key(|&(holder, amount)| (amount, holder))?;
            if amount <= own {
                return None;
            }
            // What was not used goes first, then what rested for the longest.
            let of_most = self
                .parts
                .iter()
                .filter(|(key, part)| part.holder == most && *key != name && !going.contains(*key));
            let oldest = of_most.min_by_key(|(_, part)| (part.is_used, part.touched));
            let Some((key, part)) = oldest else {
                held.remove(&most);
                continue;
            };
            going.push(key.clone());
            found += part.amount;
            held.insert(most, amount.saturating_sub(part.amount));
        }
        Some(going)
    }

    /// Its holder has done something of use with a part.
    pub fn touch(&mut self, name: &K, now: Instant) {
        if let Some(part) = self.parts.get_mut(name) {
            part.is_used = true;
            part.touched = now;
        }
    }

    /// Its holder is about to use a part. Where it never does, only the first time keeps it.
    pub fn resume(&mut self, name: &K, now: Instant) {
        if let Some(part) = self.parts.get_mut(name)
            && (part.is_used || !std::mem::replace(&mut part.has_come, true))
        {
            part.touched = now;
        }
    }

    /// A part is given back.
    pub fn leave(&mut self, name: &K) {
        let Some(Part { holder, amount, .. }) = self.parts.remove(name) else { return };
        self.amount -= amount;
        if let Some(held) = self.held.get_mut(&holder) {
            *held -= amount;
            if *held == 0 {
                self.held.remove(&holder);
            }
        }
    }

    /// Takes back what has rested for too long: less long where it was never used.
    pub fn expire(&mut self, now: Instant, unused_max: Duration, used_max: Duration) -> Vec<K> {
        let is_late = |part: &Part| {
            let rest_max = if part.is_used { used_max } else { unused_max };
            now.saturating_duration_since(part.touched) > rest_max
        };
        let late = self.parts.iter().filter(|(_, part)| is_late(part));
        let late: Vec<K> = late.map(|(name, _)| name.clone()).collect();
        late.iter().for_each(|name| self.leave(name));
        late
    }

    /// Whether there is a part of that name.
    pub fn holds(&self, name: &K) -> bool {
        self.parts.contains_key(name)
    }

    /// What a holder has.
    pub fn of(&self, holder: Holder) -> u64 {
        self.held.get(&holder).copied().unwrap_or_default()
    }

    /// How many parts there are.
    pub fn len(&self) -> usize {
        self.parts.len()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn whoever_takes_all_gives_to_whoever_asks_and_is_refused_itself() {
        let [hog, one, two] = [1, 2, 3].map(Holder);
        let now = Instant::now();
        let mut quota = Quota::new(4);
        for name in 0..4 {
            assert_eq!(quota.enter(name, hog, 1, now + SECOND * name), Ok(vec![]));
        }
        assert_eq!(quota.enter(4, hog, 1, now), Err(Full));
        // What was used stays for longest.
        quota.touch(&0, now);
        assert_eq!(quota.enter(5, one, 1, now), Ok(vec![1]));
        assert_eq!(quota.enter(6, two, 1, now), Ok(vec![2]));
        // All have about the same: nobody gives any more.
        assert_eq!(quota.enter(7, one, 1, now), Err(Full));
        assert_eq!((quota.of(hog), quota.of(one), quota.of(two), quota.len()), (2, 1, 1, 4));
        quota.leave(&6);
        assert_eq!(quota.enter(7, one, 1, now), Ok(vec![]));
        // The same once more, under a name that it has.
        assert_eq!(quota.enter(7, one, 1, now), Ok(vec![]));
        assert_eq!(quota.len(), 4);
    }

    #[test]
    fn a_part_that_is_asked_for_by_name_gives_way_to_whoever_has_less() {
        let [hog, one] = [1, 2].map(Holder);
        let now = Instant::now();
        let mut quota = Quota::new(3);
        assert!(quota.gives_way(&0, hog) && !quota.has_much(1));
        for name in 0..3 {
            quota.enter(name, hog, 1, now).unwrap();
        }
        assert!(quota.has_much(1) && quota.gives_way(&1, one) && quota.gives_way(&1, hog));
        assert_eq!(quota.enter(1, one, 1, now), Ok(vec![]));
        assert_eq!((quota.of(hog), quota.of(one)), (2, 1));
        assert!(!quota.gives_way(&2, one) && !quota.gives_way(&1, hog));
    }

    #[test]
    fn what_its_holder_has_left_alone_gives_way_to_what_it_asks_for() {
        let [one, two] = [1, 2].map(Holder);
        let now = Instant::now();
        let mut quota = Quota::new(3).resting(SECOND * 10);
        for (name, holder) in [(0, one), (1, one), (2, two)] {
            quota.enter(name, holder, 1, now).unwrap();
            quota.touch(&name, now);
        }
        assert_eq!(quota.enter(3, one, 1, now + SECOND * 10), Err(Full));
        quota.touch(&0, now + SECOND * 5);
        assert_eq!(quota.enter(3, one, 1, now + SECOND * 11), Ok(vec![1]));
        assert_eq!(quota.enter(4, one, 1, now + SECOND * 11), Err(Full));
        // Also where another has more.
        assert_eq!(quota.enter(5, two, 1, now + SECOND * 11), Ok(vec![2]));
    }

    #[test]
    fn what_nobody_uses_goes_soon() {
        let mut quota = Quota::new(10);
        let now = Instant::now();
        for name in ["unused", "used"] {
            quota.enter(name, Holder(1), 1, now).unwrap();
        }
        quota.touch(&"used", now);
        let expire = |quota: &mut Quota<&'static str>, after: u32| {
            quota.expire(now + SECOND * after, SECOND * 5, SECOND * 60)
        };
        assert_eq!(expire(&mut quota, 5), [""; 0]);
        assert_eq!(expire(&mut quota, 6), ["unused"]);
        assert_eq!(expire(&mut quota, 61), ["used"]);
        assert_eq!((quota.len(), quota.of(Holder(1))), (0, 0));
    }

    proptest! {
        /// Nobody that has no more than whoever asks loses anything, and there is never more than there may be.
        #[test]
        fn only_whoever_has_more_loses(steps in prop::collection::vec((0u8..4, 0u16..40, 1u64..6), 1..200)) {
            let mut quota = Quota::new(30);
            let now = Instant::now();
            for (holder, name, amount) in steps {
                let holder = Holder(u64::from(holder) + 1);
                let before: Vec<u64> = (0..=4).map(|of| quota.of(Holder(of))).collect();
                let whose: HashMap<u16, Holder> =
                    quota.parts.iter().map(|(name, part)| (*name, part.holder)).collect();
                match quota.enter(name, holder, amount, now) {
                    Ok(going) => for gone in going {
                        let loser = whose[&gone];
                        prop_assert!(loser != holder && before[loser.0 as usize] > amount);
                        prop_assert!(!quota.parts.contains_key(&gone));
                    },
                    Err(Full) => {
                        let after: Vec<u64> = (0..=4).map(|of| quota.of(Holder(of))).collect();
                        prop_assert_eq!(&before, &after);
                    }
                }
                let sum: u64 = quota.parts.values().map(|part| part.amount).sum();
                prop_assert!(sum == quota.amount && sum <= 30);
                prop_assert_eq!(quota.held.values().sum::<u64>(), sum);
                prop_assert!(quota.held.values().all(|held| *held > 0));
            }
        }
    }
}
