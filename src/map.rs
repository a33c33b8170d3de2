//! The concurrent map of workers, and that of leases.
//!
//! Under `--cfg heartwheel_loom` it is a stand-in of one shard behind a lock of loom's, with those operations of `DashMap` that this crate
//! uses: what loom then explores is what the engine makes of the map, not the map.

pub(crate) use imp::{Entry, Map, new};

#[cfg(not(heartwheel_loom))]
mod imp {
    use std::hash::Hash;

    use dashmap::DashMap;
    pub(crate) use dashmap::mapref::entry::Entry;
    use foldhash::quality::RandomState;

    pub(crate) type Map<K, V> = DashMap<K, V, RandomState>;

    pub(crate) fn new<K: Eq + Hash, V>(shards: usize) -> Map<K, V> {
        DashMap::with_capacity_and_hasher_and_shard_amount(0, RandomState::default(), shards)
    }
}

#[cfg(heartwheel_loom)]
mod imp {
    use std::borrow::Borrow;
    use std::ops::Deref;

    use crate::sync::{Mutex, MutexGuard, lock};

    type Shard<K, V> = Vec<(K, V)>;

    pub(crate) struct Map<K, V>(Mutex<Shard<K, V>>);

    impl<K, V> Default for Map<K, V> {
        fn default() -> Self {
            Map(Mutex::default())
        }
    }

    pub(crate) fn new<K, V>(_shards: usize) -> Map<K, V> {
        Map::default()
    }

    pub(crate) enum Entry<'a, K, V> {
        Occupied(Guard<'a, K, V>),
        Vacant(Vacant<'a, K, V>),
    }

    /// A place in the map that is taken, with the shard locked.
    pub(crate) struct Guard<'a, K, V> {
        shard: MutexGuard<'a, Shard<K, V>>,
        at: usize,
        /// The key that it was asked for by, where that was an owned one.
        asked: Option<K>,
    }

    pub(crate) struct Vacant<'a, K, V> {
        shard: MutexGuard<'a, Shard<K, V>>,
        key: K,
    }

    impl<K: Eq + Clone, V: Clone> Map<K, V> {
        fn find<Q: Eq + ?Sized>(&self, key: &Q) -> (MutexGuard<'_, Shard<K, V>>, Option<usize>)
        where
            K: Borrow<Q>,
        {
            let shard = lock(&self.0);
            let at = shard.iter().position(|(held, _)| held.borrow() == key);
            (shard, at)
        }

        pub(crate) fn get<Q: Eq + ?Sized>(&self, key: &Q) -> Option<Guard<'_, K, V>>
        where
            K: Borrow<Q>,
        {
            let (shard, at) = self.find(key);
            Some(Guard { shard, at: at?, asked: None })
        }

        pub(crate) fn entry(&self, key: K) -> Entry<'_, K, V> {
            match self.find(&key) {
                (shard, Some(at)) => Entry::Occupied(Guard { shard, at, asked: Some(key) }),
                (shard, None) => Entry::Vacant(Vacant { shard, key }),
            }
        }

        pub(crate) fn remove_if<Q: Eq + ?Sized>(
            &self,
            key: &Q,
            is_it: impl FnOnce(&K, &V) -> bool,
        ) -> Option<(K, V)>
        where
            K: Borrow<Q>,
        {
            let (mut shard, at) = self.find(key);
            let at = at.filter(|&at| is_it(&shard[at].0, &shard[at].1))?;
            Some(shard.swap_remove(at))
        }

        pub(crate) fn iter(&self) -> impl Iterator<Item = Item<K, V>> {
            lock(&self.0).clone().into_iter().map(|(key, value)| Item { key, value })
        }
    }

    impl<K, V> Guard<'_, K, V> {
        pub(crate) fn key(&self) -> &K {
            &self.shard[self.at].0
        }

        pub(crate) fn get(&self) -> &V {
            &self.shard[self.at].1
        }

        pub(crate) fn insert(&mut self, value: V) {
            self.shard[self.at].1 = value;
        }

        pub(crate) fn replace_entry(mut self, value: V) {
            if let Some(key) = self.asked.take() {
                self.shard[self.at] = (key, value);
            }
        }
    }

    impl<K, V> Deref for Guard<'_, K, V> {
        type Target = V;

        fn deref(&self) -> &V {
            self.get()
        }
    }

    impl<K, V> Vacant<'_, K, V> {
        pub(crate) fn insert(mut self, value: V) {
            self.shard.push((self.key, value));
        }
    }

    /// A copy of what was there.
    pub(crate) struct Item<K, V> {
        key: K,
        value: V,
    }

    impl<K, V> Item<K, V> {
        pub(crate) fn key(&self) -> &K {
            &self.key
        }
    }

    impl<K, V> Deref for Item<K, V> {
        type Target = V;

        fn deref(&self) -> &V {
            &self.value
        }
    }

    impl<K, V> IntoIterator for Map<K, V> {
        type Item = (K, V);
        type IntoIter = std::vec::IntoIter<(K, V)>;

        fn into_iter(self) -> Self::IntoIter {
            std::mem::take(&mut *lock(&self.0)).into_iter()
        }
    }
}
