//! Fields of text files.

use fedsa::error::quoted;

/// A finite number; 1 for true and 0 for false, in any case.
pub(crate) fn number(field: &str) -> Option<f64> {
    match field.parse::<f64>() {
        Ok(x) => Some(x).filter(|x| x.is_finite()),
        Err(_) if field.eq_ignore_ascii_case("true") => Some(1.0),
        Err(_) if field.eq_ignore_ascii_case("false") => Some(0.0),
        Err(_) => None,
    }
}

/// A field in words, for messages.
pub(crate) fn in_words(field: &str) -> String {
    if field.is_empty() { "an empty field".into() } else { format!("`{}`", quoted(field)) }
}

#[cfg(test)]
mod tests {
    use fedsa::problem::dataset::{Rows, Wanted};
    use fedsa::problem::source::Inputs;

    #[test]
    fn flags_are_numbers_wherever_numbers_are_read() {
        let rows = crate::datasets::from_csv("x,flag,target\n1,True,0\n2,FALSE,true\n".into(), &Wanted::default()).unwrap();
        assert_eq!(rows.rows, Rows::Dense { d: 2, values: vec![1.0, 1.0, 2.0, 0.0] });
        let log = crate::logs::from_csv("s_0,next_0,reward,done\ntrue,False,true,0\n".into(), Inputs::States).unwrap();
        assert_eq!((&log.states[..], &log.next[..], &log.rewards[..]), (&[1.0][..], &[0.0][..], &[1.0][..]));
        for other in ["yes", "t", "truee", "nan", "inf", ""] {
            assert_eq!(super::number(other), None, "{other}");
        }
    }
}
