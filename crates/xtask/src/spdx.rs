//! Licence expressions of packages: `MIT OR (Apache-2.0 WITH LLVM-exception AND ISC)`.
//!
//! Source: SPDX specification, annex D. The old form of cargo, `MIT/Apache-2.0`, is an `OR`.

/// Returns true if an expression can be satisfied with the allowed licences alone.
///
/// # Errors
/// Says what is no expression.
pub fn is_allowed(expression: &str, allowed: &[String]) -> Result<bool, String> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    let is = parser.either()?;
    match parser.words.first() {
        None => Ok(is),
        Some(word) => Err(format!("`{word}` is not expected in the licence {expression}")),
    }
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl Parser<'_> {
    fn take(&mut self, word: &str) -> bool {
        let is = self.words.first() == Some(&word);
        if is {
            self.words = &self.words[1..];
        }
        is
    }

    fn either(&mut self) -> Result<bool, String> {
        let mut is = self.both()?;
        while self.take("OR") {
            is |= self.both()?;
        }
        Ok(is)
    }

    fn both(&mut self) -> Result<bool, String> {
        let mut is = self.one()?;
        while self.take("AND") {
            is &= self.one()?;
        }
        Ok(is)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let is = self.either()?;
            return if self.take(")") { Ok(is) } else { Err("a bracket is open".into()) };
        }
        let Some((name, rest)) = self.words.split_first() else { return Err("a licence is missing".into()) };
        self.words = rest;
        let mut name = (*name).to_owned();
        if self.take("WITH") {
            let Some((exception, rest)) = self.words.split_first() else {
                return Err("an exception is missing".into());
            };
            self.words = rest;
            name = format!("{name} WITH {exception}");
        }
        Ok(self.allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn and_binds_closer_than_or_and_brackets_closest() {
        let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].map(String::from);
        let is = |text| is_allowed(text, &allowed);
        for text in [
            "MIT",
            "GPL-3.0 OR MIT",
            "GPL-3.0/MIT",
            "MIT AND GPL-3.0 OR ISC",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert_eq!(is(text), Ok(true), "{text}");
        }
        for text in ["GPL-3.0", "MIT AND GPL-3.0", "MIT AND (GPL-3.0 OR BSL-1.0)", "Apache-2.0"] {
            assert_eq!(is(text), Ok(false), "{text}");
        }
        for text in ["", "(MIT", "MIT MIT", "MIT OR", "MIT WITH", "MIT)"] {
            assert!(is(text).is_err(), "{text}");
        }
    }
}
