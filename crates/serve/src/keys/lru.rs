//! What is kept within a budget of bytes, and what goes when it is full.

use std::collections::{BTreeMap, HashMap};

use hushtable_pir::onion::KeyId;

/// Entries by key id; those used longest ago make room for new ones.
pub(super) struct Lru<V> {
    entries: HashMap<KeyId, Entry<V>>,
    /// Ids by their last use, oldest first.
    order: BTreeMap<u64, KeyId>,
    uses: u64,
    bytes: usize,
    bytes_max: usize,
}

struct Entry<V> {
    value: V,
    bytes: usize,
    last_use: u64,
}

impl<V> Lru<V> {
    pub fn new(bytes_max: usize) -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), uses: 0, bytes: 0, bytes_max }
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn bytes_max(&self) -> usize {
        self.bytes_max
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

    /// The entry's value; this is a use of it.
    pub fn touch(&mut self, id: &KeyId) -> Option<&mut V> {
        let entry = self.entries.get_mut(id)?;
        self.uses += 1;
        self.order.remove(&entry.last_use);
        self.order.insert(self.uses, *id);
        entry.last_use = self.uses;
        Some(&mut entry.value)
    }

    /// Keeps `value`, in place of what the id had, and returns the ids that had to go for it.
    /// Something larger than the whole budget is not kept: it goes itself.
    pub fn insert(&mut self, id: KeyId, bytes: usize, value: V) -> Vec<KeyId> {
        self.remove(&id);
        if bytes > self.bytes_max {
            return vec![id];
        }
        let mut evicted = Vec::new();
        while self.bytes > self.bytes_max - bytes {
            let Some((_, oldest)) = self.order.first_key_value() else { break };
            let oldest = *oldest;
            self.remove(&oldest);
            evicted.push(oldest);
        }
        self.uses += 1;
        self.order.insert(self.uses, id);
        self.entries.insert(id, Entry { value, bytes, last_use: self.uses });
        self.bytes += bytes;
        evicted
    }

    pub fn remove(&mut self, id: &KeyId) -> Option<V> {
        let Entry { value, bytes, last_use } = self.entries.remove(id)?;
        self.order.remove(&last_use);
        self.bytes -= bytes;
        Some(value)
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
        let mut lru = Lru::new(10);
        assert_eq!(lru.insert(id(1), 4, 'a'), []);
        assert_eq!(lru.insert(id(2), 4, 'b'), []);
        assert_eq!(lru.touch(&id(1)), Some(&mut 'a'));
        assert_eq!(lru.insert(id(3), 4, 'c'), [id(2)]);
        assert_eq!((lru.len(), lru.bytes()), (2, 8));
        assert_eq!(lru.insert(id(4), 10, 'd'), [id(1), id(3)]);
        // A second insert replaces the first.
        assert_eq!(lru.insert(id(4), 3, 'e'), []);
        assert_eq!((lru.value(&id(4)), lru.bytes()), (Some(&'e'), 3));
        assert_eq!(lru.insert(id(5), 11, 'f'), [id(5)]);
        assert!(lru.contains(&id(4)) && !lru.contains(&id(5)));
    }

    proptest! {
        /// Against the plainest list: the same entries, in the same order of use.
        #[test]
        fn it_does_what_a_list_would(steps in prop::collection::vec((0u8..3, 0u8..8, 0usize..6), 0..200)) {
            let mut lru = Lru::new(12);
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
                        prop_assert_eq!(lru.insert(id(key), bytes, key), gone);
                    }
                    1 => {
                        prop_assert_eq!(lru.touch(&id(key)).copied(), at.map(|_| key));
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
