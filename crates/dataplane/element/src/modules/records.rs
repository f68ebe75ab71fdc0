use flame_abi::manifest::Table;
use flame_base::lock;
use flame_record::{RecordBatch, Sink, SinkError};
use std::sync::{Arc, Mutex};

/// The output of all modules of a graph, until it is completed.
#[derive(Clone)]
pub struct Records(Arc<Mutex<Option<Box<dyn Sink>>>>);

impl Records {
    /// Creates the output that ends in `sink`.
    pub fn new(sink: Box<dyn Sink>) -> Self {
        Self(Arc::new(Mutex::new(Some(sink))))
    }

    /// Completes the output. Records that come later are dropped.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Sink::finish`].
    pub fn complete(&self) -> Result<(), SinkError> {
        let sink = lock(&self.0).take();
        sink.map_or(Ok(()), Sink::finish)
    }

    fn with(&self, act: impl FnOnce(&mut dyn Sink) -> Result<(), SinkError>) -> Result<(), SinkError> {
        lock(&self.0).as_mut().map_or(Ok(()), |sink| act(&mut **sink))
    }
}

impl Sink for Records {
    fn write(&mut self, module: &str, table: &Table, batch: &RecordBatch) -> Result<(), SinkError> {
        self.with(|sink| sink.write(module, table, batch))
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.with(|sink| sink.flush())
    }

    /// Completes nothing: other modules continue to write.
    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        Ok(())
    }
}
