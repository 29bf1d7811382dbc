//! How a type looks when it is encoded, found out by reading one: a reader that has no bytes,
//! writes down what it is asked for, and answers with one of each.
//!
//! One reading goes through one variant of each enum, so a type is read until all variants were
//! gone through.

use serde::de::value::U32Deserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess,
    SeqAccess, VariantAccess, Visitor,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Write};

/// Why a type can't be read; nothing that is one of ours gives any.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failure(String);

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}

impl serde::de::Error for Failure {
    fn custom<T: Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// A type by its name, and the names of its fields or variants: two modules may have types of one
/// name.
type Key = (&'static str, &'static [&'static str]);

/// The layouts of all types that were read.
#[derive(Debug, Default)]
pub(crate) struct Layouts {
    structs: BTreeMap<Key, String>,
    /// What each variant has, and whether all below it was gone through.
    enums: BTreeMap<Key, Vec<(String, bool)>>,
    /// The types that are being read.
    open: BTreeSet<Key>,
}

impl Layouts {
    /// Reads a message type; gives what was read: of each variant at least one.
    pub(crate) fn add<M: DeserializeOwned>(&mut self) -> Vec<M> {
        let mut all = Vec::new();
        loop {
            let mut noted = Note::default();
            match M::deserialize(Reader { layouts: self, note: &mut noted }) {
                Ok(read) => all.push(read),
                Err(error) => panic!("{}: {error}", std::any::type_name::<M>()),
            }
            if noted.whole {
                return all;
            }
        }
    }

    /// A line for each type and each variant, by name.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let structs =
            self.structs.iter().map(|(key, layout)| (key, vec![format!("{} {layout}", key.0)]));
        let enums = self.enums.iter().map(|(key, variants)| {
            let names = (0..).zip(key.1).zip(variants);
            let lines = names.map(|((number, name), (layout, _))| {
                format!("{}::{name} {number} {layout}", key.0).trim_end().to_owned()
            });
            (key, lines.collect())
        });
        for line in structs.chain(enums).collect::<BTreeMap<_, _>>().into_values().flatten() {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

/// What was found out about a value.
#[derive(Debug)]
struct Note {
    layout: String,
    /// Whether nothing below is left to be gone through.
    whole: bool,
}

impl Default for Note {
    fn default() -> Self {
        Self { layout: String::new(), whole: true }
    }
}

struct Reader<'a> {
    layouts: &'a mut Layouts,
    note: &'a mut Note,
}

/// Several values, one behind the other.
struct Values<'a> {
    layouts: &'a mut Layouts,
    note: &'a mut Note,
    /// What each is called, where it has a name.
    names: &'static [&'static str],
    next: usize,
    count: usize,
}

impl Values<'_> {
    fn read<'de, S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Failure> {
        let mut note = Note::default();
        let value = seed.deserialize(Reader { layouts: self.layouts, note: &mut note })?;
        if self.next > 0 {
            self.note.layout.push_str(", ");
        }
        if let Some(name) = self.names.get(self.next) {
            let _ = write!(self.note.layout, "{name}: ");
        }
        self.note.layout.push_str(&note.layout);
        self.note.whole &= note.whole;
        self.next += 1;
        Ok(value)
    }
}

impl<'de> SeqAccess<'de> for Values<'_> {
    type Error = Failure;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        (self.next < self.count).then(|| self.read(seed)).transpose()
    }
}

impl<'de> MapAccess<'de> for Values<'_> {
    type Error = Failure;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failure> {
        (self.next < self.count).then(|| self.read(seed)).transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Failure> {
        self.read(seed)
    }
}

impl Reader<'_> {
    fn several<'de, V: Visitor<'de>>(
        self,
        brackets: [&str; 2],
        names: &'static [&'static str],
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.note.layout.push_str(brackets[0]);
        let Self { layouts, note } = self;
        let value = visitor.visit_seq(Values { layouts, note, names, next: 0, count })?;
        note.layout.push_str(brackets[1]);
        Ok(value)
    }

    /// Reads a type that has a name with `read`, which gets a note of its own.
    fn named<'de, V: Visitor<'de>>(
        self,
        key: Key,
        visitor: V,
        read: impl FnOnce(Reader<'_>, V) -> Result<V::Value, Failure>,
    ) -> Result<V::Value, Failure> {
        self.note.layout.push_str(key.0);
        let mut note = Note::default();
        let is_new = self.layouts.open.insert(key);
        assert!(is_new, "{} contains itself; messages have an end", key.0);
        let value = read(Reader { layouts: self.layouts, note: &mut note }, visitor);
        self.layouts.open.remove(&key);
        self.note.whole &= note.whole;
        let known = self.layouts.structs.entry(key).or_insert_with(|| note.layout.clone());
        assert_eq!(*known, note.layout, "two types are called {}", key.0);
        value
    }
}

/// What the number of a value's type is called, and a value.
macro_rules! plain {
    ($($method:ident $visit:ident $layout:literal $value:expr;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
            self.note.layout.push_str($layout);
            visitor.$visit($value)
        })*
    };
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Failure;

    plain! {
        deserialize_bool visit_bool "bool" false;
        deserialize_i8 visit_i8 "i8" 1;
        deserialize_i16 visit_i16 "i16" 1;
        deserialize_i32 visit_i32 "i32" 1;
        deserialize_i64 visit_i64 "i64" 1;
        deserialize_i128 visit_i128 "i128" 1;
        deserialize_u8 visit_u8 "u8" 1;
        deserialize_u16 visit_u16 "u16" 1;
        deserialize_u32 visit_u32 "u32" 1;
        deserialize_u64 visit_u64 "u64" 1;
        deserialize_u128 visit_u128 "u128" 1;
        deserialize_f32 visit_f32 "f32" 1.0;
        deserialize_f64 visit_f64 "f64" 1.0;
        deserialize_char visit_char "char" 'a';
        deserialize_str visit_str "string" "a";
        deserialize_string visit_str "string" "a";
        deserialize_bytes visit_bytes "bytes" &[1];
        deserialize_byte_buf visit_bytes "bytes" &[1];
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.note.layout.push_str("perhaps ");
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.note.layout.push_str("()");
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.named((name, &[]), visitor, |reader, visitor| visitor.visit_newtype_struct(reader))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.several(["[", "]"], &[], 1, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.several(["(", ")"], &[], length, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let read = |reader: Reader<'_>, visitor: V| reader.deserialize_tuple(length, visitor);
        self.named((name, &[]), visitor, read)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.note.layout.push_str("map(");
        let Self { layouts, note } = self;
        let value = visitor.visit_map(Values { layouts, note, names: &[], next: 0, count: 1 })?;
        note.layout.push(')');
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let read = |reader: Reader<'_>, visitor: V| {
            reader.several(["{ ", " }"], fields, fields.len(), visitor)
        };
        self.named((name, fields), visitor, read)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let key = (name, variants);
        self.note.layout.push_str(name);
        assert!(self.layouts.open.insert(key), "{name} contains itself; messages have an end");
        let none = || vec![(String::new(), false); variants.len()];
        let known = self.layouts.enums.entry(key).or_insert_with(none);
        let number = known.iter().position(|(_, whole)| !whole).unwrap_or(0);
        let mut note = Note::default();
        let variant = Reader { layouts: self.layouts, note: &mut note };
        let value = visitor.visit_enum(Variant { number, reader: variant });
        self.layouts.open.remove(&key);
        if let Some(known) = self.layouts.enums.get_mut(&key) {
            known[number] = (note.layout, note.whole);
            self.note.whole &= known.iter().all(|(_, whole)| *whole);
        }
        value
    }

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Failure> {
        Err(Failure("a message says nothing of its types".into()))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_any(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_any(visitor)
    }
}

/// The variant that is gone through.
struct Variant<'a> {
    number: usize,
    reader: Reader<'a>,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Failure;
    type Variant = Reader<'a>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Reader<'a>), Failure> {
        let number = u32::try_from(self.number).map_err(serde::de::Error::custom)?;
        let number: U32Deserializer<Failure> = number.into_deserializer();
        Ok((seed.deserialize(number)?, self.reader))
    }
}

impl<'de> VariantAccess<'de> for Reader<'_> {
    type Error = Failure;

    fn unit_variant(self) -> Result<(), Failure> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Failure> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.several(["{ ", " }"], fields, fields.len(), visitor)
    }
}
