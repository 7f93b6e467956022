//! Work on several items at the same time.

use std::sync::{Mutex, PoisonError};
use std::thread;

/// Calls `work` for each item, for at most `limit` items at a time, in their order. Returns the
/// results in the order of the items.
pub(crate) fn map<T: Sync, R: Send>(
    limit: usize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let (next, ended) = (Mutex::new(items.iter().enumerate()), Mutex::new(Vec::new()));
    let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        for _ in 0..limit {
            scope.spawn(|| {
                while let Some((at, item)) = take() {
                    let result = (at, work(item));
                    let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
                    ended.push(result);
                }
            });
        }
    });
    let mut ended = ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    ended.sort_by_key(|(at, _)| *at);
    ended.into_iter().map(|(_, result)| result).collect()
}
