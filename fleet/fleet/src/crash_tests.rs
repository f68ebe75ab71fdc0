//! The archive's writer, which ends at any of its writes and deletions, from a number each.
//!
//! FLAME_SEEDS multiplies the number of runs; 1 without it. FLAME_SEED is the only one.

use crate::way_tests::Way;
use fastrand::Rng;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A store whose process ends after some writes and deletions: those behind it do nothing.
#[derive(Debug)]
struct Fuse {
    inner: Arc<dyn ObjectStore>,
    /// The number of calls until then. The last one of an even number is not done, the last one of an odd
    /// number is done without an answer.
    lit: AtomicI64,
    left: AtomicI64,
}

fn ended() -> Error {
    Error::Generic { store: "a test", source: "the process ended".into() }
}

/// What becomes of a call.
enum Call {
    Done,
    Unanswered,
    Lost,
}

impl Fuse {
    fn light(&self, calls: i64) {
        self.lit.store(calls, Ordering::SeqCst);
        self.left.store(calls, Ordering::SeqCst);
    }

    fn burn(&self) -> Call {
        let is_odd = self.lit.load(Ordering::SeqCst) % 2 != 0;
        match self.left.fetch_sub(1, Ordering::SeqCst) {
            2.. => Call::Done,
            1 if is_odd => Call::Unanswered,
            _ => Call::Lost,
        }
    }
}

impl fmt::Display for Fuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} until an end", self.inner)
    }
}

#[async_trait::async_trait]
impl ObjectStore for Fuse {
    async fn put_opts(&self, at: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        match self.burn() {
            Call::Done => self.inner.put_opts(at, payload, opts).await,
            Call::Unanswered => self.inner.put_opts(at, payload, opts).await.and(Err(ended())),
            Call::Lost => Err(ended()),
        }
    }

    async fn put_multipart_opts(&self, _: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Err(ended())
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(at, options).await
    }

    fn delete_stream(&self, all: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.burn() {
            Call::Done => self.inner.delete_stream(all),
            _ => Box::pin(futures_util::stream::once(async { Err(ended()) })),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        Err(ended())
    }
}

/// Rows come, the writer archives them and merges files, and it ends between a file and the manifest, behind
/// a change whose answer is lost, within a whole manifest or a deletion. Each row is archived once, and a
/// writer that has not ended is refused nothing.
#[test]
fn a_writer_that_ends_anywhere_archives_each_row_once() {
    let number = |name| std::env::var(name).map(|n| n.parse::<u64>().expect("a number"));
    let seeds = match number("FLAME_SEED") {
        Ok(seed) => seed..seed + 1,
        Err(_) => 0..2 * number("FLAME_SEEDS").unwrap_or(1),
    };
    for seed in seeds {
        let again = format!("play it again: FLAME_SEED={seed} with the name of this test");
        let (mut rng, mut way, mut ends) = (Rng::with_seed(seed), Way::new(), 0);
        let (lit, left) = (AtomicI64::new(0), AtomicI64::new(0));
        let fuse = Arc::new(Fuse { inner: way.store.objects.clone(), lit, left });
        fuse.light(i64::MAX);
        way.store.objects = fuse.clone();
        let mut writer = way.writer();
        for step in 0..110 {
            way.append(1 + rng.u64(..3), None);
            way.send();
            let is_lit = rng.u8(..5) == 0;
            fuse.light(if is_lit { rng.i64(1..7) } else { i64::MAX });
            let done = way.archive(&mut writer).and_then(|_| writer.maintain(None, u64::MAX));
            fuse.light(i64::MAX);
            if let Err(e) = done {
                assert!(is_lit, "step {step}: {e}\n{again}");
                ends += 1;
                writer = way.writer();
            }
            if step % 20 == 19 {
                way.archive(&mut writer).unwrap_or_else(|e| panic!("step {step}: {e}\n{again}"));
                way.check();
            }
        }
        let state = way.state();
        assert!(ends > 5, "{ends} ends\n{again}");
        assert!(state.version > 90 && state.files.len() < 40, "{} files\n{again}", state.files.len());
    }
}
