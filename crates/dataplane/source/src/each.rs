use crate::{Damage, Help, Next, Notice, Progress, RawBlock, Shared, Source, SourceError};
use flame_plan::Discipline;

/// Returns a source that gives each of its blocks to `act` before they are returned. `act` returns whether
/// the source continues after the block.
pub fn each(
    source: Box<dyn Source>,
    act: impl FnMut(&mut RawBlock) -> Result<bool, SourceError> + Send + 'static,
) -> Box<dyn Source> {
    Box::new(Each { source, act, is_over: false })
}

struct Each<F> {
    source: Box<dyn Source>,
    act: F,
    is_over: bool,
}

impl<F: FnMut(&mut RawBlock) -> Result<bool, SourceError> + Send> Source for Each<F> {
    fn next(&mut self, block: &mut RawBlock) -> Result<Next, SourceError> {
        if self.is_over {
            block.packets.clear();
            return Ok(Next::End);
        }
        let next = self.source.next(block)?;
        if next == Next::Packets {
            self.is_over = !(self.act)(block)?;
        }
        Ok(next)
    }

    fn progress(&self) -> Progress {
        self.source.progress()
    }

    fn discipline(&self) -> Discipline {
        self.source.discipline()
    }

    fn is_nano(&self) -> bool {
        self.source.is_nano()
    }

    fn fill(&self) -> u32 {
        self.source.fill()
    }

    fn help(&self) -> Help {
        self.source.help()
    }

    fn tell_when_quiet(&mut self) {
        self.source.tell_when_quiet();
    }

    fn is_ready(&self) -> bool {
        self.is_over || self.source.is_ready()
    }

    fn close(&mut self) -> bool {
        self.source.close()
    }

    fn damage(&self) -> &[Damage] {
        self.source.damage()
    }

    fn shared(&self) -> Option<Shared> {
        self.source.shared()
    }

    fn take_notice(&mut self) -> Option<Notice> {
        self.source.take_notice()
    }
}
