//! The tables of the configuration file and their keys, as the types that read them declare them.
//!
//! Suggestions come from here, and the documentation is held against it, so that neither can miss a key.

use serde::Deserialize;
use serde::de::value::Error;
use serde::de::{Deserializer, Error as _, Visitor};
use serde::forward_to_deserialize_any;

use super::api::ApiTable;
use super::document::{
    AccessTable, AccountTable, AuthenticationTable, Document, EngineTable, HostTable, ListenTable,
    LogTable, LunTable, NamespaceTable, SubsystemTable, TargetTable, VolumeTable,
};
use super::limits::{LimitsTable, NegotiationTable};
use super::pool::PoolTable;

/// A table of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// As it is written: `[[volume]]`; empty for the top level; a key for inline tables: `luns`.
    pub header: &'static str,
    /// Its keys, tables within it included.
    pub keys: &'static [&'static str],
}

#[must_use]
pub fn tables() -> Vec<Table> {
    let table = |header, keys| Table { header, keys };
    vec![
        table("", keys_of::<Document>()),
        table("[[volume]]", keys_of::<VolumeTable>()),
        table("[[pool]]", keys_of::<PoolTable>()),
        table("[[target]]", keys_of::<TargetTable>()),
        table("[[target.access]]", keys_of::<AccessTable>()),
        table("luns", keys_of::<LunTable>()),
        table("accounts", keys_of::<AccountTable>()),
        table("[[subsystem]]", keys_of::<SubsystemTable>()),
        table("[[subsystem.access]]", keys_of::<HostTable>()),
        table("namespaces", keys_of::<NamespaceTable>()),
        table("[discovery]", keys_of::<AuthenticationTable>()),
        table("[listen]", keys_of::<ListenTable>()),
        table("[api]", keys_of::<ApiTable>()),
        table("[engine]", keys_of::<EngineTable>()),
        table("[limits]", keys_of::<LimitsTable>()),
        table("[iscsi]", keys_of::<NegotiationTable>()),
        table("[log]", keys_of::<LogTable>()),
    ]
}

/// How the table of this name is written: `[[volume]]`, `[engine]`.
#[must_use]
pub fn header(name: &str) -> Option<&'static str> {
    let headers = tables().into_iter().map(|table| table.header);
    headers
        .filter(|header| header.starts_with('['))
        .find(|header| header.trim_matches(['[', ']']) == name)
}

/// The keys that a type reads, by the list that it gives to its deserializer.
fn keys_of<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    let mut keys: &'static [&'static str] = &[];
    // It reads nothing: it only says what it would read.
    let _ = T::deserialize(Listener(&mut keys));
    keys
}

/// A deserializer that hears which keys are wanted and has none of them.
struct Listener<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Listener<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("not a table"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(Error::custom("nothing is read"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_tells_its_keys() {
        for table in tables() {
            assert!(!table.keys.is_empty(), "{}", table.header);
        }
        let top = tables()[0];
        for key in top.keys {
            let is_plain = *key == "state-dir" || key.starts_with("sandbox");
            assert!(is_plain || header(key).is_some(), "{key}");
        }
        assert_eq!(header("engine"), Some("[engine]"));
        assert_eq!(header("target.access"), Some("[[target.access]]"));
        assert_eq!(header("luns"), None);
    }
}
