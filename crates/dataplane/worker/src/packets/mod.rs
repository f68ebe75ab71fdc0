//! From blocks of the source to the modules of a worker: reading, decoding, dealing to workers, views,
//! batches, and what is left out under overload.

pub mod batches;
pub mod clock;
pub mod closing;
pub mod commands;
pub mod dispatch;
pub mod draft;
pub mod fixed_blocks;
pub mod overload;
pub mod pipeline;
pub mod read;
pub mod regulator;
pub mod shared_reader;
pub mod sorting;
pub mod stage;
