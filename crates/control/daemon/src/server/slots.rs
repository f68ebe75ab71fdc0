//! Places for work on threads that block: few at the same time, and each principal has its turn.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The number of principals above which those that want nothing are forgotten.
const MANY: usize = 256;

/// Places for one kind of work. A principal waits with all its requests behind its own places before it waits
/// for a common one, so at most that many of its requests are ahead of anyone else's. The operator has places
/// of its own.
pub struct Slots {
    common: Arc<Semaphore>,
    operator: Arc<Semaphore>,
    each: usize,
    own: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A place that is taken while this value lives. It belongs into the closure that does the work: a client
/// that closes its connection ends the wait for the work, but not the work.
pub struct Slot {
    _permits: [Option<OwnedSemaphorePermit>; 2],
}

impl Slots {
    /// Creates `common` places, of which each principal takes at most `each`, and `operator` further ones.
    pub fn new(common: usize, each: usize, operator: usize) -> Self {
        let of = |n| Arc::new(Semaphore::new(n));
        Self { common: of(common), operator: of(operator), each, own: Mutex::default() }
    }

    /// Waits for a place for a principal, or for the operator if `who` is nothing.
    pub async fn take(&self, who: Option<&str>) -> Slot {
        // The semaphores are never closed.
        let Some(who) = who else {
            return Slot { _permits: [self.operator.clone().acquire_owned().await.ok(), None] };
        };
        let own = {
            let mut all = flame_base::lock(&self.own);
            if all.len() >= MANY {
                // A place in use or waited for is counted more than once.
                all.retain(|_, own| Arc::strong_count(own) > 1);
            }
            all.entry(who.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.each))).clone()
        };
        let first = own.acquire_owned().await.ok();
        Slot { _permits: [first, self.common.clone().acquire_owned().await.ok()] }
    }

    /// Does `work` on a thread where it may block, in a place of `who`. The place is free again when the work
    /// is done, even if its client does not wait any longer.
    ///
    /// # Errors
    ///
    /// Returns an error if the work panics.
    pub async fn run<T: Send + 'static>(
        &self,
        who: Option<&str>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, tokio::task::JoinError> {
        let slot = self.take(who).await;
        tokio::task::spawn_blocking(move || {
            let done = work();
            drop(slot);
            done
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;
    use tokio::time::timeout;

    const SHORT: Duration = Duration::from_millis(100);

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
    }

    #[test]
    fn work_keeps_its_place_when_its_client_has_gone() {
        runtime().block_on(async {
            let slots = Arc::new(Slots::new(2, 1, 1));
            let (begun, has_begun) = mpsc::channel();
            let (end, ends) = mpsc::channel::<()>();
            let (of_work, work) = (slots.clone(), move || {
                begun.send(()).unwrap();
                let _ = ends.recv();
            });
            let request = tokio::spawn(async move { of_work.run(Some("alice"), work).await });
            tokio::task::spawn_blocking(move || has_begun.recv().unwrap()).await.unwrap();
            // As when its connection is closed.
            request.abort();
            let _ = request.await;
            assert!(timeout(SHORT, slots.take(Some("alice"))).await.is_err(), "the work goes on");
            end.send(()).unwrap();
            slots.take(Some("alice")).await;
        });
    }

    #[test]
    fn a_principal_with_many_requests_keeps_nobody_out() {
        runtime().block_on(async {
            let slots = Arc::new(Slots::new(2, 1, 1));
            let first = slots.take(Some("mallory")).await;
            let waiting: Vec<_> = (0..100)
                .map(|_| {
                    let slots = slots.clone();
                    tokio::spawn(async move { slots.take(Some("mallory")).await })
                })
                .collect();
            tokio::task::yield_now().await;
            let _alice = slots.take(Some("alice")).await;
            // Both places are taken. The operator has another one.
            let mut bob = std::pin::pin!(slots.take(Some("bob")));
            assert!(timeout(SHORT, bob.as_mut()).await.is_err());
            let _operator = slots.take(None).await;
            // The next place is for the one who waits for it, not for the hundred.
            drop(first);
            let _bob = bob.await;
            assert!(waiting.iter().all(|request| !request.is_finished()));
            waiting.iter().for_each(tokio::task::JoinHandle::abort);
        });
    }

    #[test]
    fn principals_that_want_nothing_are_forgotten() {
        runtime().block_on(async {
            let slots = Slots::new(2, 1, 1);
            let _kept = slots.take(Some("kept")).await;
            for n in 0..2 * MANY {
                slots.take(Some(&n.to_string())).await;
            }
            let own = slots.own.lock().unwrap();
            assert!(own.len() <= MANY && own.contains_key("kept"));
        });
    }
}
