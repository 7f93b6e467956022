//! Named bit fields and the payload after them.

/// A header as its fields, and the payload after it.
#[derive(Debug, Clone)]
#[must_use]
pub struct Frame {
    fields: Vec<Field>,
    /// The bytes after the header.
    pub payload: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Field {
    name: &'static str,
    bits: u32,
    value: u128,
}

impl Frame {
    /// Creates a frame from fields, in the order on the wire: name, number of bits, value.
    pub fn new(fields: &[(&'static str, u32, u128)], payload: &[u8]) -> Self {
        let mut frame = Self {
            fields: Vec::new(),
            payload: payload.to_vec(),
        };
        frame.append(fields);
        frame
    }

    /// Appends fields to the existing ones.
    pub fn append(&mut self, fields: &[(&'static str, u32, u128)]) {
        let fields = fields
            .iter()
            .map(|&(name, bits, value)| Field { name, bits, value });
        self.fields.extend(fields);
    }

    /// The names of all fields.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().map(|field| field.name)
    }

    /// The value of a field.
    ///
    /// # Panics
    /// When there is no such field.
    pub fn get(&self, name: &str) -> u128 {
        let found = self.fields.iter().find(|field| field.name == name);
        found.unwrap_or_else(|| panic!("no field {name}")).value
    }

    /// Sets a field to another value; bits that do not fit are discarded.
    ///
    /// # Panics
    /// When there is no such field.
    pub fn with(mut self, name: &str, value: u128) -> Self {
        let found = self.fields.iter_mut().find(|field| field.name == name);
        let field = found.unwrap_or_else(|| panic!("no field {name}"));
        field.value = value & mask(field.bits);
        self
    }

    /// Replaces the payload.
    pub fn with_payload(mut self, payload: &[u8]) -> Self {
        payload.clone_into(&mut self.payload);
        self
    }

    /// Header and payload as they are sent on the wire.
    ///
    /// # Panics
    /// When the fields do not fill whole bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let (mut pending, mut count) = (0_u8, 0);
        for field in &self.fields {
            for bit in (0..field.bits).rev() {
                pending = pending << 1 | u8::from(field.value >> bit & 1 == 1);
                count += 1;
                if count == 8 {
                    bytes.push(pending);
                    (pending, count) = (0, 0);
                }
            }
        }
        assert_eq!(count, 0, "a header that does not fill whole bytes");
        bytes.extend_from_slice(&self.payload);
        bytes
    }
}

const fn mask(bits: u32) -> u128 {
    if bits >= u128::BITS {
        u128::MAX
    } else {
        (1 << bits) - 1
    }
}
