//! Objects that are put in order when the whole text has been read. One that is put in order when it closes is copied
//! with everything inside it, so what is inside many that came out of order would be copied as often. Where that comes
//! to much, an object is only noted here, and all is copied once.

use std::ops::Range;

/// The objects that are out of order in the output.
#[derive(Default)]
pub(super) struct Deferred {
    // INVARIANT: none of them moves any more. Only an object that has one of them inside could move it, and that is
    // longer, so there is no room for it either, and it is noted as well.
    objects: Vec<Object>,
    /// Where the members of each stand, in their right order.
    members: Vec<Range<usize>>,
}

struct Object {
    /// What is between its braces in the output.
    inside: Range<usize>,
    /// Which of the members are its own.
    members: Range<usize>,
}

impl Deferred {
    #[cold]
    pub(super) fn note(&mut self, inside: Range<usize>, members: impl Iterator<Item = Range<usize>>) {
        let first = self.members.len();
        self.members.extend(members);
        let members = first..self.members.len();
        self.objects.push(Object { inside, members });
    }

    /// The output with all objects in order.
    pub(super) fn put_in_order(self, out: Vec<u8>) -> Vec<u8> {
        if self.objects.is_empty() {
            out
        } else {
            self.copy_in_order(&out)
        }
    }

    #[cold]
    fn copy_in_order(mut self, out: &[u8]) -> Vec<u8> {
        let mut objects = std::mem::take(&mut self.objects);
        objects.sort_unstable_by_key(|object| object.inside.start);
        let mut ordered = Vec::with_capacity(out.len());
        self.copy(out, 0..out.len(), &objects, &mut ordered);
        debug_assert_eq!(ordered.len(), out.len(), "nothing but the order changes");
        ordered
    }

    /// Copies a part of the output. `objects` are those in it, by where they begin.
    fn copy(&self, out: &[u8], part: Range<usize>, mut objects: &[Object], ordered: &mut Vec<u8>) {
        let mut at = part.start;
        while let Some((object, others)) = objects.split_first() {
            ordered.extend_from_slice(&out[at..object.inside.start]);
            let (inner, behind) = others.split_at(count_before(others, object.inside.end));
            for (place, member) in self.members[object.members.clone()].iter().enumerate() {
                if place > 0 {
                    ordered.push(b',');
                }
                let inner = &inner[count_before(inner, member.start)..count_before(inner, member.end)];
                self.copy(out, member.clone(), inner, ordered);
            }
            (at, objects) = (object.inside.end, behind);
        }
        ordered.extend_from_slice(&out[at..part.end]);
    }
}

/// How many of these objects begin before a place in the output.
fn count_before(objects: &[Object], place: usize) -> usize {
    objects.partition_point(|object| object.inside.start < place)
}
