//! Values grouped by name, in the order in which the names appear.

use std::collections::HashMap;

/// Lists of values by name.
pub(super) struct Lines<T> {
    index: HashMap<String, usize>,
    lists: Vec<(String, Vec<T>)>,
}

impl<T> Default for Lines<T> {
    fn default() -> Self {
        Lines { index: HashMap::new(), lists: Vec::new() }
    }
}

impl<T> Lines<T> {
    /// Adds a value to the list of that name, which is created if missing.
    pub fn add(&mut self, name: String, item: T) {
        match self.index.get(&name) {
            Some(at) => self.lists[*at].1.push(item),
            None => {
                self.index.insert(name.clone(), self.lists.len());
                self.lists.push((name, vec![item]));
            }
        }
    }

    pub fn into_vec(self) -> Vec<(String, Vec<T>)> {
        self.lists
    }
}
