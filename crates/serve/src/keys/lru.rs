//! What is kept within a budget of bytes, and what goes when it is full.

use std::collections::{BTreeMap, HashMap};

use hushtable_pir::onion::KeyId;

/// Whose an entry is: the number of the peer that it came from. [`NOBODY`]'s are those of which that
/// is not known.
pub(super) type Owner = u64;

/// Whose entries are that were found at the start, until somebody uses them.
pub(super) const NOBODY: Owner = 0;

/// Entries by key id. Those used longest ago make room for new ones: of the owner of the new one
/// first, and of whoever has the most only where it has none.
pub(super) struct Lru<V> {
    entries: HashMap<KeyId, Entry<V>>,
    /// Ids by owner and last use, oldest first.
    order: BTreeMap<(Owner, u64), KeyId>,
    /// Bytes of each owner's.
    owned: HashMap<Owner, usize>,
    uses: u64,
    bytes: usize,
    bytes_max: usize,
    /// Bytes of one owner's, but for nobody's.
    owner_bytes_max: usize,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    owner: Owner,
    last_use: u64,
}

impl<V> Lru<V> {
    pub fn new(bytes_max: usize, owner_bytes_max: usize) -> Self {
        let owner_bytes_max = owner_bytes_max.min(bytes_max);
        let (entries, order, owned) = Default::default();
        Self { entries, order, owned, uses: 0, bytes: 0, bytes_max, owner_bytes_max }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Most bytes of one entry.
    pub fn entry_bytes_max(&self) -> usize {
        self.owner_bytes_max
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn contains(&self, id: &KeyId) -> bool {
        self.entries.contains_key(id)
    }

    /// The entry's value, without a use of it.
    pub fn value(&self, id: &KeyId) -> Option<&V> {
        self.entries.get(id).map(|entry| &entry.value)
    }

    /// Whose the entry is.
    pub fn owner(&self, id: &KeyId) -> Option<Owner> {
        self.entries.get(id).map(|entry| entry.owner)
    }

    /// The entry's value; this is a use of it, by `user`: nobody's is its own from now on.
    pub fn touch(&mut self, id: &KeyId, user: Owner) -> Option<&mut V> {
        let entry = self.entries.get_mut(id)?;
        self.uses += 1;
        self.order.remove(&(entry.owner, entry.last_use));
        if entry.owner == NOBODY {
            give(&mut self.owned, NOBODY, entry.bytes);
            *self.owned.entry(user).or_default() += entry.bytes;
            entry.owner = user;
        }
        self.order.insert((entry.owner, self.uses), *id);
        entry.last_use = self.uses;
        Some(&mut entry.value)
    }

    /// Keeps `value` for `owner`, in place of what the id had, and returns the ids that had to go for
    /// it. Something larger than an owner's budget is not kept: it goes itself.
    pub fn insert(&mut self, id: KeyId, owner: Owner, bytes: usize, value: V) -> Vec<KeyId> {
        self.remove(&id);
        if bytes > self.owner_bytes_max {
            return vec![id];
        }
        let mut evicted = Vec::new();
        let own_bytes_max = if owner == NOBODY { self.bytes_max } else { self.owner_bytes_max };
        while self.bytes > self.bytes_max - bytes || self.owned(owner) > own_bytes_max - bytes {
            let own = self.oldest(owner);
            // Who has nothing takes of who has the most, so nobody is kept out, and nobody that
            // has less than others loses anything.
            let most = || self.owned.iter().max_by_key(|&(owner, bytes)| (bytes, owner));
            let Some(oldest) = own.or_else(|| self.oldest(*most()?.0)) else { break };
            self.remove(&oldest);
            evicted.push(oldest);
        }
        self.uses += 1;
        self.order.insert((owner, self.uses), id);
        self.entries.insert(id, Entry { value, bytes, owner, last_use: self.uses });
        *self.owned.entry(owner).or_default() += bytes;
        self.bytes += bytes;
        evicted
    }

    pub fn remove(&mut self, id: &KeyId) -> Option<V> {
        let Entry { value, bytes, owner, last_use } = self.entries.remove(id)?;
        self.order.remove(&(owner, last_use));
        give(&mut self.owned, owner, bytes);
        self.bytes -= bytes;
        Some(value)
    }

    fn owned(&self, owner: Owner) -> usize {
        self.owned.get(&owner).copied().unwrap_or_default()
    }

    fn oldest(&self, owner: Owner) -> Option<KeyId> {
        self.order.range((owner, 0)..=(owner, u64::MAX)).next().map(|(_, id)| *id)
    }
}

/// Takes bytes off an owner's, and forgets who has none.
fn give(owned: &mut HashMap<Owner, usize>, owner: Owner, bytes: usize) {
    if let Some(held) = owned.get_mut(&owner) {
        *held -= bytes;
        if *held == 0 {
            owned.remove(&owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(byte: u8) -> KeyId {
        KeyId::from([byte; 32])
    }

    #[test]
    fn the_one_used_longest_ago_goes_first() {
        let mut lru = Lru::new(10, 10);
        assert_eq!(lru.insert(id(1), 7, 4, 'a'), []);
        assert_eq!(lru.insert(id(2), 7, 4, 'b'), []);
        assert_eq!(lru.touch(&id(1), 7), Some(&mut 'a'));
        assert_eq!(lru.insert(id(3), 7, 4, 'c'), [id(2)]);
        assert_eq!((lru.len(), lru.bytes()), (2, 8));
        assert_eq!(lru.insert(id(4), 7, 10, 'd'), [id(1), id(3)]);
        // A second insert replaces the first.
        assert_eq!(lru.insert(id(4), 7, 3, 'e'), []);
        assert_eq!((lru.value(&id(4)), lru.bytes()), (Some(&'e'), 3));
        assert_eq!(lru.insert(id(5), 7, 11, 'f'), [id(5)]);
        assert!(lru.contains(&id(4)) && !lru.contains(&id(5)));
    }

    #[test]
    fn one_owner_cannot_push_out_anothers() {
        let mut lru = Lru::new(100, 50);
        for victim in 1..=4 {
            assert_eq!(lru.insert(id(victim), victim.into(), 10, ()), []);
        }
        // As many as it likes: what goes is the attacker's own.
        for attack in 10..200 {
            let gone = lru.insert(id(attack), 99, 10, ());
            assert!(gone.iter().all(|gone| *gone >= id(10)), "{gone:?}");
        }
        assert!((1..=4).all(|victim| lru.contains(&id(victim))));
        assert_eq!((lru.owned(99), lru.bytes()), (50, 90));
        // Who comes late takes of the attacker, who has the most, and not of those that have little.
        assert_eq!(lru.insert(id(5), 5, 20, ()), [id(195)]);
        assert_eq!(lru.insert(id(6), 6, 20, ()), [id(196), id(197)]);
        assert!((1..=6).all(|victim| lru.contains(&id(victim))));
        assert_eq!(lru.insert(id(7), 7, 51, ()), [id(7)], "more than one may have");
        // What was there before the start is whose it is that uses it.
        assert_eq!(lru.insert(id(8), NOBODY, 10, ()), [id(198)]);
        assert_eq!((lru.owner(&id(8)), lru.owned(NOBODY)), (Some(NOBODY), 10));
        lru.touch(&id(8), 99);
        lru.touch(&id(8), 1);
        assert_eq!((lru.owner(&id(8)), lru.owned(NOBODY), lru.owned(99)), (Some(99), 0, 20));
    }

    proptest! {
        /// Against the plainest list: the same entries, in the same order of use.
        #[test]
        fn it_does_what_a_list_would(steps in prop::collection::vec((0u8..3, 0u8..8, 0usize..6), 0..200)) {
            let mut lru = Lru::new(12, 12);
            let mut list: Vec<(u8, usize)> = Vec::new();
            for (what, key, bytes) in steps {
                let at = list.iter().position(|&(k, _)| k == key);
                match what {
                    0 => {
                        let mut gone = Vec::new();
                        if let Some(at) = at {
                            list.remove(at);
                        }
                        while list.iter().map(|&(_, bytes)| bytes).sum::<usize>() + bytes > 12 {
                            gone.push(id(list.remove(0).0));
                        }
                        list.push((key, bytes));
                        prop_assert_eq!(lru.insert(id(key), 7, bytes, key), gone);
                    }
                    1 => {
                        prop_assert_eq!(lru.touch(&id(key), 7).copied(), at.map(|_| key));
                        if let Some(at) = at {
                            let used = list.remove(at);
                            list.push(used);
                        }
                    }
                    _ => {
                        prop_assert_eq!(lru.remove(&id(key)), at.map(|at| list.remove(at).0));
                    }
                }
                prop_assert_eq!(lru.len(), list.len());
                prop_assert_eq!(lru.bytes(), list.iter().map(|&(_, bytes)| bytes).sum::<usize>());
                prop_assert_eq!(lru.order.len(), list.len());
            }
        }
    }
}
