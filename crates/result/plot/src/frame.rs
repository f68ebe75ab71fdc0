//! Some columns of a table, over all batches.

use crate::ROWS;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// The values of a column. All numbers are floating-point, which is sufficient for pictures.
#[derive(Debug)]
pub enum Values {
    /// The type is unknown until the first record.
    None,
    Numbers(Vec<f64>),
    Words {
        numbers: Vec<u32>,
        words: Vec<String>,
        index: HashMap<String, u32>,
    },
}

#[derive(Debug)]
pub struct Frame {
    columns: Vec<(String, Values)>,
    pub rows: usize,
    /// The number of rows beyond [`ROWS`].
    pub dropped: u64,
}

impl Frame {
    pub fn new<'a>(columns: impl IntoIterator<Item = &'a str>) -> Self {
        let columns = columns.into_iter().map(|c| (c.to_owned(), Values::None)).collect();
        Self { columns, rows: 0, dropped: 0 }
    }

    /// Returns column `name` as numbers. The result is empty if the column holds words.
    pub fn numbers(&self, name: &str) -> &[f64] {
        match self.column(name) {
            Some(Values::Numbers(numbers)) => numbers,
            _ => &[],
        }
    }

    /// Returns column `name` as words, by row. The result is empty if the column holds numbers.
    pub fn words(&self, name: &str) -> impl Iterator<Item = &str> + Clone {
        let (numbers, words): (&[u32], &[String]) = match self.column(name) {
            Some(Values::Words { numbers, words, .. }) => (numbers, words),
            _ => (&[], &[]),
        };
        numbers.iter().map(|n| words[*n as usize].as_str())
    }

    fn column(&self, name: &str) -> Option<&Values> {
        self.columns.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }

    /// Adds a batch.
    ///
    /// # Errors
    ///
    /// Returns a description of a column that is missing or has an unexpected type.
    pub fn batch(&mut self, batch: &RecordBatch) -> Result<(), String> {
        let taken = batch.num_rows().min(ROWS - self.rows);
        for (name, values) in &mut self.columns {
            let array = batch.column_by_name(name).ok_or_else(|| format!("there is no column {name}"))?;
            append(values, &array.slice(0, taken))
                .ok_or_else(|| wrong(name, &array.data_type().to_string()))?;
        }
        self.rows += taken;
        self.dropped += (batch.num_rows() - taken) as u64;
        Ok(())
    }

    /// Adds a record from JSON. `null` is stored as NaN.
    ///
    /// # Errors
    ///
    /// Returns a description of a column that is missing or has an unexpected type. The record is then not
    /// added.
    pub fn record(&mut self, record: &Map<String, Value>) -> Result<(), String> {
        if self.rows == ROWS {
            self.dropped += 1;
            return Ok(());
        }
        // A record is added completely or not at all, so that columns have equal lengths.
        for (name, values) in &self.columns {
            let value = record.get(name).ok_or_else(|| format!("there is no column {name}"))?;
            let fits = match values {
                Values::None => value.is_number() || value.is_null() || value.is_string(),
                Values::Numbers(_) => value.is_number() || value.is_null(),
                Values::Words { .. } => value.is_string(),
            };
            if !fits {
                return Err(wrong(name, &value.to_string()));
            }
        }
        for (name, values) in &mut self.columns {
            match &record[name.as_str()] {
                Value::String(word) => values.word(word),
                value => values.number(value.as_f64().unwrap_or(f64::NAN)),
            };
        }
        self.rows += 1;
        Ok(())
    }
}

fn wrong(name: &str, found: &str) -> String {
    let found: String = found.chars().take(60).collect();
    format!("column {name} holds {found}, which is not what is drawn from it")
}

impl Values {
    fn number(&mut self, number: f64) -> Option<()> {
        if let Self::None = self {
            *self = Self::Numbers(Vec::new());
        }
        let Self::Numbers(numbers) = self else { return None };
        numbers.push(number);
        Some(())
    }

    fn word(&mut self, word: &str) -> Option<()> {
        if let Self::None = self {
            *self = Self::Words { numbers: Vec::new(), words: Vec::new(), index: HashMap::new() };
        }
        let Self::Words { numbers, words, index } = self else { return None };
        let number = match index.get(word) {
            Some(known) => *known,
            None => {
                let next = words.len() as u32;
                words.push(word.to_owned());
                index.insert(word.to_owned(), next);
                next
            }
        };
        numbers.push(number);
        Some(())
    }
}

fn append(values: &mut Values, array: &dyn Array) -> Option<()> {
    macro_rules! numbers {
        ($type:ty) => {
            array.as_primitive_opt::<$type>()?.values().iter().try_for_each(|n| values.number(*n as f64))
        };
    }
    match array.data_type() {
        DataType::UInt8 => numbers!(UInt8Type),
        DataType::UInt16 => numbers!(UInt16Type),
        DataType::UInt32 => numbers!(UInt32Type),
        DataType::UInt64 => numbers!(UInt64Type),
        DataType::Int64 => numbers!(Int64Type),
        DataType::Float64 => numbers!(Float64Type),
        DataType::Utf8 => {
            let array = array.as_string_opt::<i32>()?;
            (0..array.len()).try_for_each(|i| values.word(array.value(i)))
        }
        DataType::Dictionary(..) => {
            let array = array.as_dictionary_opt::<UInt8Type>()?;
            let words = array.values().as_string_opt::<i32>()?;
            array.keys().values().iter().try_for_each(|k| values.word(words.value((*k).into())))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_wrong_record_leaves_the_columns_as_they_were() {
        let mut frame = Frame::new(["a", "b"]);
        frame.record(&record(r#"{"a":1,"b":"x","c":[]}"#)).unwrap();
        for wrong in [r#"{"a":1}"#, r#"{"a":"x","b":"y"}"#, r#"{"a":2,"b":3}"#, r#"{"a":2,"b":{}}"#] {
            assert!(frame.record(&record(wrong)).unwrap_err().contains("column"), "{wrong}");
        }
        frame.record(&record(r#"{"a":null,"b":"x"}"#)).unwrap();
        assert_eq!(
            (frame.rows, frame.numbers("a").len(), frame.words("b").collect::<Vec<_>>()),
            (2, 2, vec!["x", "x"])
        );
        assert!(frame.numbers("a")[1].is_nan() && frame.numbers("b").is_empty());
    }

    #[test]
    fn rows_beyond_the_limit_are_counted() {
        let mut frame = Frame::new(["a"]);
        let one = record(r#"{"a":1}"#);
        (0..ROWS + 5).for_each(|_| frame.record(&one).unwrap());
        assert_eq!((frame.rows, frame.dropped), (ROWS, 5));
    }
}
