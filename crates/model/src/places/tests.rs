//! One field, however it is written, is at one line.

use super::*;

#[test]
fn a_pair_is_of_two() {
    let pair = |list: &[u32]| Pair::try_from(list.to_vec());
    assert_eq!(pair(&[3, 4]), Ok(Pair(3, 4)));
    assert_eq!(pair(&[3, 4, 5]), Err("a list of length 2, found 3".into()));
    assert_eq!(pair(&[3]), Err("a list of length 2, found 1".into()));
}

#[test]
fn a_field_is_found_in_its_table() {
    let text = "title = \"t\"\n[cpu] # all\n[[node]]\nid = 0\ncpus = 2\n[[node]]\nid = 0\n";
    let places = Places::of(text);
    let of = |field, nth| places.line(field, &[nth]);
    assert_eq!([of("cpu", 0), of("node.id", 0), of("node.cpus", 0)], [2, 4, 5]);
    assert_eq!([of("node.id", 1), of("node.cpus", 1)], [7, 6], "its table, without such a key");
    assert_eq!([of("node", 2), of("links.between", 0)], [3, 1], "no such table");
    assert_eq!((places.value("node.cpus", &[0]), places.value("node", &[0])), (Some("2"), None));
    assert!(places.has("cpu") && !places.has("id"));
}

/// Tables, dotted keys, inline tables and quoted keys say the same.
#[test]
fn however_a_field_is_written_it_is_found() {
    let ways = [
        (
            "[[process]]\n[[process.phase]]\n[[process]]\n[[process.phase]]\n[[ process . phase ]]\ntimes=0",
            6,
        ),
        (
            "[[process]]\n[[process.phase]]\n[[process]]\n[[process.phase]]\n[[process.\"phase\"]]\n'times'=0",
            6,
        ),
        ("[[process]]\n[[process]]\nphase = [{},\n{ a = \"x = [[1\", times = 0 }]", 4),
        ("process = [{phase=[{times=1}]},\n {phase=[{},\n {\"\\u0074imes\"=0}]}]", 3),
        ("process = [\n # [[process]]\n {},\n {phase=[{},{},],\n}]", 4),
    ];
    for (text, line) in ways {
        assert_eq!(Places::of(text).line("process.phase.times", &[1, 1]), line, "{text}");
    }
    let dotted = Places::of("sim.stream_mb_s = 3\r\nsim.kernel.move_ns = 1\r\n");
    assert_eq!((dotted.line("sim.kernel.move_ns", &[]), dotted.line("sim.work_ns", &[])), (2, 1));
    let cells = Places::of("\u{feff}[d]\nslit = [\n [10, 20],\n [20,\n 10]]");
    let of = |at: &[usize]| cells.line("d.slit", at);
    assert_eq!([of(&[]), of(&[0]), of(&[1, 0]), of(&[1, 1]), of(&[1, 7])], [2, 3, 4, 5, 4]);
}

#[test]
fn what_the_reader_means_is_told_by_its_names() {
    let text =
        "a = no\n[t]\nx =\nl = [1,\n 2, 3 4]\n[[n]]\n[[n]]\n\"i\\u0064\" = 0x\ni = { k = 1 }\n";
    let places = Places::of(text);
    let of = |what: &str| {
        let start = text.find(what).unwrap();
        places.at(&(start..start + what.len())).map(|place| place.field)
    };
    let field = |name: &str| Some(name.to_string());
    assert_eq!([of("no"), of("[t]"), of("0x"), of("k")], ["a", "t", "n.id", "n.i.k"].map(field));
    let place = places.at(&(4..6)).unwrap();
    assert_eq!((places.written(&place), places.at(&(0..0)).map(|p| p.field)), ("no", field("a")));
    assert_eq!(Places::of("").at(&(0..0)), None);
    assert_eq!(Places::of("[a]\nx=1\n[dist\n").at(&(13..13)), None, "the line of no key");
}

#[test]
fn a_byte_that_is_no_text_is_told_with_its_line() {
    assert_eq!(text(b"a\n\xc3\xa4".to_vec()), Ok("a\n\u{e4}".into()));
    let wrong = text(b"a = 1\n# \xc3\xa4\nb = \"\xe4\"\n".to_vec()).unwrap_err();
    assert_eq!(wrong, NotText { line: 3, byte: 0xe4 });
    assert_eq!(wrong.to_string(), "text in UTF-8, found the byte 0xe4");
    assert_eq!(text(b"\xc3".to_vec()), Err(NotText { line: 1, byte: 0xc3 }), "cut off");
}

#[test]
fn nothing_from_a_file_acts_on_a_terminal() {
    assert_eq!(visible("a `b` \u{e4}"), "a `b` \u{e4}");
    assert_eq!(visible("\u{1b}[31m\n\u{9b}2J\u{7f}"), "\\u001b[31m\\u000a\\u009b2J\\u007f");
    assert_eq!(visible("x\u{202e}y"), "x\\u202ey");
}
