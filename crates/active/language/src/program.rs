//! A program whose types are checked.

use flame_capsule::Host;

/// The most bytes of a source text.
pub const MAX_SOURCE: usize = 16 * 1024;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Int,
    Bool,
    Place,
    Ints,
    Places,
    /// Nothing: of calls that only have an effect.
    Unit,
}

/// What a function needs at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub instructions: u64,
    pub memory: u64,
}

/// A mistake in a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {text}: {remedy}")]
pub struct ProgramError {
    pub line: usize,
    pub column: usize,
    /// What was found, and what was expected.
    pub text: String,
    pub remedy: String,
}

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    pub name: String,
    pub(crate) parameters: Vec<Type>,
    pub(crate) body: Expression,
    pub(crate) result: Type,
    /// The number of its variables, with its parameters.
    pub(crate) variables: usize,
    /// Another function calls it at the same node.
    pub(crate) is_called: bool,
}

/// A program.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) functions: Vec<Function>,
    pub(crate) code: Vec<u8>,
    pub(crate) bounds: Vec<Cost>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Equal,
    Differ,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A call of the node that takes and gives numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Call {
    Here,
    Origin,
    From,
    Now,
    Hops,
    Next,
    Neighbours,
    Send,
    Deliver,
    Leave,
    Find,
    Service,
}

#[derive(Clone, Debug)]
pub(crate) enum Expression {
    Constant(i64),
    Variable(usize),
    Let(usize, Box<Self>, Box<Self>),
    If(Box<Self>, Box<Self>, Box<Self>),
    Then(Box<Self>, Box<Self>),
    Fold(Box<Fold>),
    Binary(Operator, Box<Self>, Box<Self>),
    /// A call of a function above.
    Function(usize, Vec<Self>),
    /// A call of the node with numbers, of which names are constants.
    Call(Call, Vec<Self>),
    Send(Box<Send>),
    Deliver(Vec<(Type, Self)>),
    List(Vec<Self>),
    Push(Box<Self>, Box<Self>),
    Length(Box<Self>),
}

#[derive(Clone, Debug)]
pub(crate) struct Fold {
    pub list: Expression,
    pub most: u32,
    pub item: usize,
    pub value: usize,
    pub first: Expression,
    pub body: Expression,
}

#[derive(Clone, Debug)]
pub(crate) struct Send {
    pub is_remote: bool,
    pub function: usize,
    pub arguments: Vec<(Type, Expression)>,
    pub place: Expression,
    pub parts: Expression,
}

impl Type {
    /// Returns whether values are lists.
    #[must_use]
    pub fn is_list(self) -> bool {
        matches!(self, Self::Ints | Self::Places)
    }

    pub(crate) fn element(self) -> Option<Self> {
        match self {
            Self::Ints => Some(Self::Int),
            Self::Places => Some(Self::Place),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Bool => "bool",
            Self::Place => "place",
            Self::Ints => "ints",
            Self::Places => "places",
            Self::Unit => "nothing",
        }
    }
}

impl Function {
    /// Returns the types of its parameters.
    #[must_use]
    pub fn parameters(&self) -> &[Type] {
        &self.parameters
    }
}

impl Program {
    /// Reads, checks and compiles a text.
    ///
    /// # Errors
    ///
    /// Returns the first mistake, with its line and column.
    pub fn read(text: &str) -> Result<Self, ProgramError> {
        if text.len() > MAX_SOURCE {
            return Err(ProgramError {
                line: 1,
                column: 1,
                text: format!("the text has {} bytes, expected at most {MAX_SOURCE}", text.len()),
                remedy: "make it shorter".to_owned(),
            });
        }
        let functions = crate::parser::parse(text)?;
        let (code, bounds) = crate::compile::compile(&functions)?;
        Ok(Self { functions, code, bounds })
    }

    /// Returns the functions; a capsule names one by its place in this list.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Returns the compiled module.
    #[must_use]
    pub fn code(&self) -> &[u8] {
        &self.code
    }

    /// Returns the most that each function needs.
    #[must_use]
    pub fn bounds(&self) -> &[Cost] {
        &self.bounds
    }

    /// Interprets a function, and returns the steps that it took.
    ///
    /// # Errors
    ///
    /// Returns why it ended early.
    pub fn interpret(
        &self,
        function: usize,
        arguments: &[u8],
        host: &mut dyn Host,
    ) -> Result<u64, crate::Ended> {
        crate::interpret::run(&self.functions, function, arguments, host)
    }
}
