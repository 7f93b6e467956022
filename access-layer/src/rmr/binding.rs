//! The binding of a window.

/// State of a window; `B` describes a binding. The `on_*` methods are the only writers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Binding<B> {
    /// Not bound: the peer has no access.
    Unbound,
    /// Bound since the last bind was posted.
    Bound(B),
    /// The window is freed.
    Over,
}

impl<B> Binding<B> {
    /// Called when a bind was posted, or an unbind (`None`). Returns the binding that the caller
    /// must drop: the replaced binding, or the new one if the window was freed.
    pub(super) fn on_bind(&mut self, new: Option<B>) -> Option<B> {
        let next = match (&self, new) {
            (Self::Over, new) => return new,
            (_, Some(new)) => Self::Bound(new),
            (_, None) => Self::Unbound,
        };
        std::mem::replace(self, next).into_bound()
    }

    /// Called when the window is freed, which unbinds it.
    pub(super) fn on_free(&mut self) -> Option<B> {
        std::mem::replace(self, Self::Over).into_bound()
    }

    /// Returns the binding, if there is one.
    pub(super) fn bound(&self) -> Option<&B> {
        match self {
            Self::Bound(bound) => Some(bound),
            Self::Unbound | Self::Over => None,
        }
    }

    fn into_bound(self) -> Option<B> {
        match self {
            Self::Bound(bound) => Some(bound),
            Self::Unbound | Self::Over => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Binding::{Bound, Over, Unbound};
    use super::*;

    type Event = fn(&mut Binding<u32>) -> Option<u32>;
    type Row = (fn() -> Binding<u32>, [(Option<u32>, Binding<u32>); 3]);

    #[test]
    fn every_event_in_every_state() {
        let events: [Event; 3] = [
            |binding| binding.on_bind(Some(2)),
            |binding| binding.on_bind(None),
            Binding::on_free,
        ];
        let rows: [Row; 3] = [
            // (state, results and next states of bind, unbind and free)
            (
                || Unbound,
                [(None, Bound(2)), (None, Unbound), (None, Over)],
            ),
            (
                || Bound(1),
                [(Some(1), Bound(2)), (Some(1), Unbound), (Some(1), Over)],
            ),
            (|| Over, [(Some(2), Over), (None, Over), (None, Over)]),
        ];
        for (state, expected) in rows {
            for (number, (event, after)) in events.into_iter().zip(expected).enumerate() {
                let mut binding = state();
                let got = (event(&mut binding), binding);
                assert_eq!(got, after, "event {number} in {:?}", state());
            }
        }
    }

    #[test]
    fn only_a_bound_window_reports_a_binding() {
        for (binding, bound) in [(Unbound, None), (Bound(1), Some(&1)), (Over, None)] {
            assert_eq!(binding.bound(), bound, "{binding:?}");
        }
    }
}
