//! Wrong files made of sound ones, and what is said of them.

/// What is replaced by what; the line and the field that are told; what was expected, and what is there.
pub type Row = (&'static str, &'static str, usize, &'static str, &'static str);

/// What is not as it should be in what `said` has of the sound text with each row's change.
pub fn amiss(sound: &str, path: &str, rows: &[Row], said: impl Fn(&str) -> String) -> Vec<String> {
    let of = |&(from, to, line, field, expected): &Row| {
        let text = sound.replacen(from, to, 1);
        assert_ne!(text, sound, "{from}");
        let said = said(&text);
        let place = format!("{path}:{line}: expected {field}");
        let right = said.starts_with(&place) && said.contains(expected) && !said.contains('\n');
        (!right).then(|| format!("'{to}': '{place} … {expected}', not: {said}"))
    };
    rows.iter().filter_map(of).collect()
}
