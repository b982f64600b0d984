//! A made-up file tree for tests.

use std::path::{Path, PathBuf};

/// A folder of its own under the system's temporary one, removed when dropped.
pub(crate) struct Tree(PathBuf);

impl Tree {
    pub(crate) fn new() -> Self {
        let name = |n| std::env::temp_dir().join(format!("ticketlock-tree-{}-{}-{n}", std::process::id(), super::thread_id()));
        // Threads are reused by the test runner and ids by the kernel, so the first free number is taken.
        let taken = |path: &PathBuf| std::fs::create_dir(path).is_ok();
        Self((0..1_000).map(name).find(taken).expect("no folder could be made for the test's tree"))
    }

    pub(crate) fn root(&self) -> &Path {
        &self.0
    }

    /// Writes `text` to `path`, which is relative to the root, making folders as needed.
    pub(crate) fn file(&self, path: &str, text: impl AsRef<[u8]>) -> &Self {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
