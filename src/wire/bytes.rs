//! Fields of fixed-size headers, and fixed-size headers at the front of a slice.

/// Reads and writes fields at constant places of a header.
///
/// Place and width are constants, checked when the call is compiled: a field outside the header is no program.
pub(super) trait Fields {
    /// The `W` bytes at `AT`.
    fn at<const AT: usize, const W: usize>(&self) -> [u8; W];
    /// Overwrites the `W` bytes at `AT`.
    fn put<const AT: usize, const W: usize>(&mut self, value: [u8; W]);
}

impl<const N: usize> Fields for [u8; N] {
    #[inline(always)]
    fn at<const AT: usize, const W: usize>(&self) -> [u8; W] {
        const { assert!(AT + W <= N, "the field lies inside the header") };
        let mut value = [0; W];
        value.copy_from_slice(&self[AT..AT + W]);
        value
    }

    #[inline(always)]
    fn put<const AT: usize, const W: usize>(&mut self, value: [u8; W]) {
        const { assert!(AT + W <= N, "the field lies inside the header") };
        self[AT..AT + W].copy_from_slice(&value);
    }
}

/// Splits the first `N` bytes off the front of `rest`; `None`, and `rest` as it was, when there are fewer.
#[inline(always)]
pub(super) fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (front, back) = rest.split_first_chunk()?;
    *rest = back;
    Some(front)
}

/// Splits room for `N` bytes off the front of `rest`; `None` when there is less.
#[inline(always)]
pub(super) fn take_mut<'a, const N: usize>(rest: &mut &'a mut [u8]) -> Option<&'a mut [u8; N]> {
    let (front, back) = core::mem::take(rest).split_first_chunk_mut()?;
    *rest = back;
    Some(front)
}

/// The low 24 bits of `value`, most significant byte first.
#[inline(always)]
pub(super) const fn be24(value: u32) -> [u8; 3] {
    let [_, high, middle, low] = value.to_be_bytes();
    [high, middle, low]
}

/// The number that [`be24`] wrote.
#[inline(always)]
pub(super) const fn from_be24([high, middle, low]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, high, middle, low])
}
