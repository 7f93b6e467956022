//! Queue pairs as the program sees them: one structure for all types.
//!
//! | Module | Contents |
//! |---|---|
//! | `exported` | creation, and the functions of the library |
//! | `builder` | requests that a program builds by `ibv_wr_*` |
//! | `object` | the structure, and the types |

mod builder;
mod exported;
mod object;

pub(crate) use self::exported::{HAS_PD, QpAttrEx, create, create_qp_ex, destroy};
pub(crate) use self::object::{Kind, connected, kind_of};
