//! A function's instructions as the tree that Wasm's control flow is.

use wasmparser::{BlockType, FunctionBody, Operator};

/// Frames in frames, at most: a walk goes as deep.
pub const MAX_DEPTH: usize = 128;

pub enum Node<'a> {
    /// With its place in the file.
    Op(Operator<'a>, u32),
    Block {
        kind: BlockType,
        body: Vec<Node<'a>>,
    },
    Loop {
        kind: BlockType,
        body: Vec<Node<'a>>,
        about: About,
    },
    If {
        kind: BlockType,
        place: u32,
        then: Vec<Node<'a>>,
        or: Vec<Node<'a>>,
    },
}

/// A loop at a glance.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// Where it begins in the file.
    pub offset: usize,
    /// Locals that it writes.
    pub written: Vec<u32>,
    /// Whether it writes globals, or calls what might.
    pub globals: bool,
}

enum Open<'a> {
    Function,
    Block(BlockType),
    Loop(BlockType, About),
    If(BlockType, u32),
    Else(BlockType, u32, Vec<Node<'a>>),
}

/// The tree and how deep it is; nothing if frames are nested too deep.
pub fn tree<'a>(body: &FunctionBody<'a>) -> Result<Option<(Vec<Node<'a>>, usize)>, wasmparser::Error> {
    let mut deepest = 0;
    let mut open: Vec<(Open<'a>, Vec<Node<'a>>)> = vec![(Open::Function, Vec::new())];
    let mut reader = body.get_operators_reader()?;
    while !reader.eof() {
        let (operator, offset) = reader.read_with_offset()?;
        match operator {
            Operator::Block { blockty } => open.push((Open::Block(blockty), Vec::new())),
            Operator::If { blockty } => open.push((Open::If(blockty, offset as u32), Vec::new())),
            Operator::Loop { blockty } => {
                open.push((Open::Loop(blockty, About { offset, ..About::default() }), Vec::new()));
            }
            Operator::Else => {
                let Some((Open::If(kind, place), then)) = open.pop() else { return Ok(None) };
                open.push((Open::Else(kind, place, then), Vec::new()));
            }
            Operator::End => {
                let Some((frame, nodes)) = open.pop() else { return Ok(None) };
                let node = match frame {
                    Open::Function => return Ok(Some((nodes, deepest))),
                    Open::Block(kind) => Node::Block { kind, body: nodes },
                    Open::If(kind, place) => Node::If { kind, place, then: nodes, or: Vec::new() },
                    Open::Else(kind, place, then) => Node::If { kind, place, then, or: nodes },
                    Open::Loop(kind, mut about) => {
                        about.written.sort_unstable();
                        about.written.dedup();
                        outer(&mut open, &about);
                        Node::Loop { kind, body: nodes, about }
                    }
                };
                if let Some((_, nodes)) = open.last_mut() {
                    nodes.push(node);
                }
            }
            operator => {
                note(&mut open, &operator);
                if let Some((_, nodes)) = open.last_mut() {
                    nodes.push(Node::Op(operator, offset as u32));
                }
            }
        }
        deepest = deepest.max(open.len());
        if open.len() > MAX_DEPTH {
            return Ok(None);
        }
    }
    Ok(None)
}

/// The innermost open loop.
fn innermost<'b>(open: &'b mut [(Open<'_>, Vec<Node<'_>>)]) -> Option<&'b mut About> {
    open.iter_mut().rev().find_map(|(frame, _)| match frame {
        Open::Loop(_, about) => Some(about),
        _ => None,
    })
}

fn note(open: &mut [(Open<'_>, Vec<Node<'_>>)], operator: &Operator<'_>) {
    let Some(about) = innermost(open) else { return };
    match operator {
        Operator::LocalSet { local_index } | Operator::LocalTee { local_index } => {
            about.written.push(*local_index)
        }
        Operator::GlobalSet { .. } | Operator::Call { .. } | Operator::CallIndirect { .. } => {
            about.globals = true
        }
        _ => {}
    }
}

/// What an inner loop writes, the loops around it write.
fn outer(open: &mut [(Open<'_>, Vec<Node<'_>>)], inner: &About) {
    if let Some(about) = innermost(open) {
        about.written.extend(&inner.written);
        about.globals |= inner.globals;
    }
}
