//! A byte output to standard output or a file, which stages files and tolerates closed pipes.

use super::SinkError;
use super::rotation::with_part;
use flame_files::Staged;
use flate2::write::GzEncoder;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

const BUFFER: usize = 256 * 1024;

/// A buffered output. If it is dropped without [`Out::finish`], a staged file is removed.
pub(crate) struct Out {
    /// The name in errors: `standard output` or the requested path.
    path: PathBuf,
    writer: BufWriter<Counted>,
    written: u64,
    closed: bool,
}

/// A destination, and the number of bytes that it took.
struct Counted {
    target: Target,
    bytes: u64,
}

enum Target {
    Stdout(std::io::Stdout),
    Staged(Staged),
    Gzip(GzEncoder<Staged>),
    Zstd(zstd::stream::write::Encoder<'static, Staged>),
    /// An existing device, pipe or socket, which can be neither renamed nor replaced.
    Direct(File),
    /// Memory, or another writer of the caller.
    Writer(Box<dyn Write + Send>),
    #[cfg(test)]
    Broken,
}

impl Out {
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, SinkError> {
        let target = match path {
            None => Target::Stdout(std::io::stdout()),
            Some(path) => target(path).map_err(|e| SinkError::io(path, e))?,
        };
        let path = path.map_or_else(|| PathBuf::from("standard output"), Path::to_owned);
        Ok(Self::with(path, target))
    }

    fn with(path: PathBuf, target: Target) -> Self {
        let writer = BufWriter::with_capacity(BUFFER, Counted { target, bytes: 0 });
        Self { path, writer, written: 0, closed: false }
    }

    /// Writes to `writer`, which is called `name` in errors.
    pub(crate) fn to(writer: Box<dyn Write + Send>, name: &str) -> Self {
        Self::with(PathBuf::from(name), Target::Writer(writer))
    }

    #[cfg(test)]
    pub(crate) fn broken() -> Self {
        Self::with("broken".into(), Target::Broken)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_terminal(&self) -> bool {
        matches!(&self.writer.get_ref().target, Target::Stdout(out) if out.is_terminal())
    }

    /// Returns the number of bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Returns the name that a staged file receives when it is complete.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        matches!(self.writer.get_ref().target, Target::Staged(_) | Target::Gzip(_) | Target::Zstd(_))
            .then(|| self.path.clone())
    }

    /// Returns whether the output is a file of its own, and no terminal, pipe or device.
    pub(crate) fn is_file(&self) -> bool {
        self.file().is_some()
    }

    pub(crate) fn closed(&self) -> bool {
        self.closed
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        if self.closed {
            return Ok(());
        }
        let result = self.writer.write_all(bytes);
        self.written += bytes.len() as u64;
        self.judge(result)
    }

    /// Writes whole lines, and clears them, once they fill the buffer.
    pub(crate) fn take(&mut self, lines: &mut Vec<u8>) -> Result<(), SinkError> {
        if lines.len() < BUFFER { Ok(()) } else { self.take_all(lines) }
    }

    /// Writes lines, and clears them.
    pub(crate) fn take_all(&mut self, lines: &mut Vec<u8>) -> Result<(), SinkError> {
        let result = self.write(lines);
        lines.clear();
        result
    }

    pub(crate) fn flush(&mut self) -> Result<(), SinkError> {
        if self.closed {
            return Ok(());
        }
        let result = self.writer.flush();
        self.judge(result)
    }

    /// Flushes the output, and gives a staged file its name.
    pub(crate) fn finish(mut self) -> Result<(), SinkError> {
        self.complete()
    }

    /// Completes the output like [`Out::finish`]. Nothing may be written afterwards.
    pub(crate) fn complete(&mut self) -> Result<(), SinkError> {
        self.flush()?;
        let result = match &mut self.writer.get_mut().target {
            Target::Staged(staged) => staged.finish(),
            Target::Gzip(encoder) => encoder.try_finish().and_then(|()| encoder.get_mut().finish()),
            Target::Zstd(encoder) => encoder.do_finish().and_then(|()| encoder.get_mut().finish()),
            _ => Ok(()),
        };
        result.map_err(|e| self.error(e))
    }

    /// Flushes the output. A staged file keeps its partial name, which is returned.
    pub(crate) fn abandon(&mut self) -> Result<Option<PathBuf>, SinkError> {
        self.flush()?;
        let kept = match &mut self.writer.get_mut().target {
            Target::Staged(staged) => Ok(Some(staged.keep())),
            Target::Gzip(encoder) => encoder.try_finish().map(|()| Some(encoder.get_mut().keep())),
            Target::Zstd(encoder) => encoder.do_finish().map(|()| Some(encoder.get_mut().keep())),
            _ => Ok(None),
        };
        kept.map_err(|e| self.error(e))
    }

    fn judge(&mut self, result: std::io::Result<()>) -> Result<(), SinkError> {
        match result {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                self.closed = true;
                Ok(())
            }
            Err(e) => Err(self.error(e)),
            Ok(()) => Ok(()),
        }
    }

    /// Returns the error of this output for one of the system.
    pub(crate) fn error(&self, source: std::io::Error) -> SinkError {
        let path = self.path.clone();
        if !super::is_full(&source) {
            return SinkError::Io { path, source };
        }
        let removed = self.file().map(|_| self.writer.get_ref().bytes);
        SinkError::Full { path, source, removed }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.writer.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.writer.flush()
    }
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.target.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.target.flush()
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::Staged(staged) => staged.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
            Self::Direct(file) => file.write(bytes),
            Self::Writer(writer) => writer.write(bytes),
            #[cfg(test)]
            Self::Broken => Err(ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            _ => Ok(()),
        }
    }
}

fn target(path: &Path) -> std::io::Result<Target> {
    if std::fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
        return Ok(Target::Direct(OpenOptions::new().write(true).open(path)?));
    }
    if path.is_dir() {
        return Err(ErrorKind::IsADirectory.into());
    }
    if let Some(form) = path.extension().and_then(|e| e.to_str()).filter(|e| UNWRITTEN.contains(e)) {
        let reason = format!("files are not compressed as .{form}: give a name in .gz or .zst, or without");
        return Err(std::io::Error::new(ErrorKind::InvalidInput, reason));
    }
    let staged = Staged::new(path)?;
    Ok(match packed(path) {
        Some((_, Packing::Gzip)) => Target::Gzip(GzEncoder::new(staged, flate2::Compression::default())),
        Some((_, Packing::Zstd)) => Target::Zstd(zstd::stream::write::Encoder::new(staged, 3)?),
        None => Target::Staged(staged),
    })
}

/// Extensions that ask for a compression which is not written.
const UNWRITTEN: [&str; 4] = ["xz", "bz2", "lz4", "lzma"];

/// A form in which files are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Gzip,
    Zstd,
}

/// Returns the name of a file without the extension that asks for compression, and its form, if it has one.
pub(crate) fn packed(path: &Path) -> Option<(PathBuf, Packing)> {
    let packing = match path.extension()?.to_str()? {
        "gz" => Packing::Gzip,
        "zst" => Packing::Zstd,
        _ => return None,
    };
    Some((path.with_extension(""), packing))
}

/// The files of tables, for formats with one table per file.
pub(crate) enum Layout {
    One(PathBuf),
    Folder { path: PathBuf, part: String, extension: &'static str },
}

impl Layout {
    /// Chooses a layout: `NAME.extension` is a file, anything else a folder, which is created.
    pub(crate) fn new(
        path: &Path,
        extension: &'static str,
        tables: &[String],
        part: &str,
    ) -> Result<Self, SinkError> {
        let special = Self::is_special(path);
        if Self::holds_one(path, extension) {
            if tables.len() == 1 {
                let path = if special { path.to_owned() } else { with_part(path, part) };
                return Ok(Self::One(path));
            }
            return Err(SinkError::ManyInFile {
                path: path.to_owned(),
                extension,
                tables: tables.len(),
                list: tables.join(", "),
            });
        }
        std::fs::create_dir_all(path).map_err(|e| SinkError::io(path, e))?;
        Ok(Self::Folder { path: path.to_owned(), part: part.to_owned(), extension })
    }

    /// Returns whether a path is there, and neither a file nor a folder.
    fn is_special(path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|m| !m.is_dir() && !m.is_file())
    }

    /// Returns whether a path stands for one file, which holds one table.
    pub(crate) fn holds_one(path: &Path, extension: &str) -> bool {
        let plain = packed(path).map(|(plain, _)| plain);
        Self::is_special(path)
            || plain.as_deref().unwrap_or(path).extension().is_some_and(|e| e == extension) && !path.is_dir()
    }

    pub(crate) fn open(&self, module: &str, table: &str) -> Result<Out, SinkError> {
        match self {
            Self::One(path) => Out::open(Some(path)),
            Self::Folder { path, part, extension } => {
                Out::open(Some(&path.join(format!("{module}.{table}{part}.{extension}"))))
            }
        }
    }
}
