//! Data as people have it by mistake: each is refused with the file, the line and the column where there are any.

use std::io::Write;

use super::*;

const HEAD: &str = "s_0,next_0,reward,done\n";
const GOOD: &str = "s_0,next_0,reward,done\n0,1,1,0\n1,2,1,0\n2,3,1,1\n0,1,1,0\n1,0,0,1\n";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(bytes).unwrap();
    packer.finish().unwrap()
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

/// A file with a name, the options beside it, and what the message has.
type Case<'a> = (&'a str, Vec<u8>, &'a [&'a str], &'a [&'a str]);

fn logs() -> Vec<Case<'static>> {
    let text = |rows: &str| format!("{HEAD}{rows}").into_bytes();
    let long = GOOD.repeat(50);
    vec![
        // Nothing, or not what it is called.
        ("a.csv", vec![], &[], &["an empty file"]),
        ("a.csv", b"\n\n\n".to_vec(), &[], &["an empty file"]),
        ("a.csv", HEAD.into(), &[], &["a log without transitions"]),
        ("a.csv", "\u{feff}".into(), &[], &["an empty file"]),
        ("a.csv", b"PK\x03\x04aaaa".to_vec(), &[], &["a zip archive"]),
        ("a.csv", b"\x89HDF\r\n\x1a\n".to_vec(), &[], &["an HDF5 file"]),
        ("a.csv", b"\x80\x04\x95aaaa".to_vec(), &[], &["a Python pickle"]),
        ("a.csv", b"\x93NUMPY\x01\x00".to_vec(), &[], &["a NumPy array"]),
        ("a.csv", b"ARROW1\x00\x00".to_vec(), &[], &["an Arrow file"]),
        ("a.csv", b"SQLite format 3\x00".to_vec(), &[], &["an SQLite database"]),
        ("a.csv", b"BZh91AY".to_vec(), &[], &["packed with bzip2"]),
        ("a.csv", b"\xfd7zXZ\x00".to_vec(), &[], &["packed with xz"]),
        ("a.csv", b"\xff\xfes\x00_\x00".to_vec(), &[], &["UTF-16"]),
        ("a.csv", b"abc\x00\x01\x02".to_vec(), &[], &["not a text file: byte 3 is 0"]),
        ("a.csv", b"{\"s_0\": 1}".to_vec(), &[], &["JSON"]),
        ("a.csv", b"[[1, 2]]".to_vec(), &[], &["JSON"]),
        ("a.csv", b"PAR1".to_vec(), &[], &["not a readable Parquet file"]),
        ("a.parquet", GOOD.into(), &[], &["not a readable Parquet file"]),
        ("a.parquet", vec![], &[], &["not a readable Parquet file"]),
        // Packed files.
        ("a.csv.gz", gzip(long.as_bytes())[..60].to_vec(), &[], &["the file ends too early"]),
        ("a.csv.gz", [gzip(GOOD.as_bytes()), b"xyz".to_vec()].concat(), &[], &["bytes after the end of the gzip stream"]),
        ("a.csv.zst", zstd(long.as_bytes())[..40].to_vec(), &[], &["the file ends too early"]),
        ("a.csv.zst", b"\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff".to_vec(), &[], &["a.csv.zst: "]),
        ("a.csv.gz", gzip(b"PK\x03\x04aaaa"), &[], &["a zip archive"]),
        // Separators, quotes, ragged lines.
        ("a.csv", GOOD.replace(',', "|").into(), &[], &["line 1 has a single field", "not by '|'"]),
        ("a.csv", GOOD.replace(',', " ").into(), &[], &["the columns are `s_0 next_0 reward done`"]),
        ("a.csv", text("0,1,2\n"), &[], &["line 2: 3 fields, but the header has 4"]),
        ("a.csv", text("0,1,2,0,7\n"), &[], &["line 2: 5 fields, but the header has 4"]),
        ("a.csv", text("0,1,0,0\n\"1,2,0,0\n2,3,0,0\n"), &[], &["line 3: a quote that is opened there is not closed"]),
        ("a.csv", text("0,\"1\n2\",0,0\n"), &[], &["line 2, column `next_0`"]),
        ("a.tsv", GOOD.replace(',', "\t").replacen("1\t2\t1", "1\t2", 1).into(), &[], &["line 3: 3 fields, but the header has 4"]),
        (
            "a.csv",
            b"s_0,next_0,reward,done\r\n0,1,0,0\r\n1,x,0,0\r\n".to_vec(),
            &[],
            &["line 3, column `next_0`: `x` is not a finite number"],
        ),
        ("a.csv", b"s_0,next_0,reward,done\n0,1,\xff,0\n".to_vec(), &[], &["line 2: not UTF-8"]),
        // Columns.
        ("a.csv", b"0,1,0,0\n1,2,0,0\n".to_vec(), &[], &["there is no column `s_*`: the columns are `0`, `1`, `0`, `0`"]),
        ("a.csv", b"s_0,next_0,reward\n0,1,0\n".to_vec(), &[], &["there is no column `done`"]),
        ("a.csv", b"s_0,next_0,done\n0,1,0\n".to_vec(), &[], &["there is no column `reward`"]),
        ("a.csv", b"s_0,reward,done\n0,1,0\n".to_vec(), &[], &["there is no column `next_0`"]),
        ("a.csv", b"s_0,s_1,next_0,reward,done\n0,1,0,0,0\n".to_vec(), &[], &["there is no column `next_1`"]),
        ("a.csv", b"s_0,s_0,next_0,reward,done\n0,1,0,0,0\n".to_vec(), &[], &["two columns are called `s_0`"]),
        ("a.csv", b"s_0,next_0,reward,reward,done\n0,1,0,0,0\n".to_vec(), &[], &["two columns are called `reward`"]),
        (
            "a.csv",
            b"obs_0,obs_1,next_obs_0,next_obs_1,reward,done\n".to_vec(),
            &[],
            &["there is no column `s_*`", "--columns s_*=obs_*,next_*=next_obs_*"],
        ),
        ("a.csv", b"obs,next_obs,reward,done\n".to_vec(), &[], &["--columns s_0=obs,next_0=next_obs"]),
        ("a.csv", b"s_0,next_0,reward,done,ratio,target,behaviour\n".to_vec(), &[], &["`ratio`, and `target` and `behaviour`"]),
        ("a.csv", GOOD.into(), &["--columns", "s_0=x"], &["there is no column `x` for `s_0`"]),
        ("a.csv", GOOD.into(), &["--columns", "reward"], &["`reward` is not NAME=FIELD"]),
        ("a.csv", GOOD.into(), &["--columns", "rewards=r"], &["--columns: a log has no column `rewards`", "NAME=FIELD"]),
        ("a.csv", GOOD.into(), &["--columns", "s_*=x"], &["s_*=x", "one * on both sides"]),
        ("a.csv", GOOD.into(), &["--columns", "s_0=x,s_0=y"], &["`s_0` comes twice"]),
        ("a.csv", GOOD.into(), &["--columns", "s_0=x,s_1=x"], &["`x` is both `s_0` and `s_1`"]),
        ("a.csv", GOOD.into(), &["--agent-column", "who"], &["there is no column `who`, which names the agents"]),
        (
            "a.csv",
            b"who,s_0,next_0,reward,done\n,0,1,0,0\n".to_vec(),
            &["--agent-column", "who"],
            &["line 2, column `who`: an empty field"],
        ),
        // Numbers and flags.
        ("a.csv", text("0,1,abc,0\n"), &[], &["line 2, column `reward`: `abc` is not a finite number"]),
        ("a.csv", text("0,1,,0\n"), &[], &["line 2, column `reward`: an empty field is not a finite number"]),
        ("a.csv", text("0,1,nan,0\n"), &[], &["line 2, column `reward`: `nan`"]),
        ("a.csv", text("0,-inf,1,0\n"), &[], &["line 2, column `next_0`: `-inf`"]),
        ("a.csv", format!("{HEAD}0,1,1{},0\n", "0".repeat(400)).into(), &[], &["line 2, column `reward`: `100"]),
        ("a.csv", text("0,1,1e400,0\n"), &[], &["line 2, column `reward`: `1e400` is not a finite number"]),
        ("a.csv", text("0,1,\"1,5\",0\n"), &[], &["line 2, column `reward`: `1,5` is not a finite number"]),
        ("a.csv", text("0,1,0x10,0\n"), &[], &["`0x10` is not a finite number"]),
        ("a.csv", text("[0.1 0.2],1,0,0\n"), &[], &["line 2, column `s_0`: `[0.1 0.2]`"]),
        ("a.csv", text("0,1,1,2\n"), &[], &["line 2, column `done`: `2` is not true or false, or 1 or 0"]),
        ("a.csv", text("0,1,1,yes\n"), &[], &["line 2, column `done`: `yes`"]),
        ("a.csv", text("0,1,1,0\ns_0,next_0,reward,done\n"), &[], &["line 3, column `s_0`: `s_0`"]),
        ("a.csv", b"s_0,next_0,reward,done,truncated\n0,1,1,0,maybe\n".to_vec(), &[], &["line 2, column `truncated`: `maybe`"]),
        ("a.csv", b"s_0,next_0,reward,done,episode\n0,1,1,0,0.5\n".to_vec(), &[], &["column `episode`: `0.5` is not a whole number"]),
        ("a.csv", b"s_0,next_0,reward,done,episode\n0,1,1,0,\n".to_vec(), &[], &["column `episode`: an empty field"]),
        (
            "a.csv",
            b"s_0,next_0,reward,done,episode\n0,1,1,0,3\n5,6,1,0,4\n2,3,1,0,3\n".to_vec(),
            &[],
            &["row 2, `episode`: episode 3 goes on after another one, in another state than row 0 led to", "`env`"],
        ),
        ("a.csv", b"s_0,next_0,reward,done,ratio\n0,1,1,0,-1\n".to_vec(), &[], &["column `ratio`: `-1`"]),
        ("a.csv", b"s_0,next_0,reward,done,target,behaviour\n0,1,1,0,1,0\n".to_vec(), &[], &["column `behaviour`: `0`"]),
        // What is asked for does not go with the data.
        ("a.csv", text("0,1,1,0\n1,2,1,0\n"), &["--gamma", "1"], &["1, and 1 of 1 episodes do not end", "--gamma"]),
        ("a.csv", text("x,1,1,0\ny,2,1,0\n"), &["--bad-rows", "skip"], &["a log without transitions"]),
        ("a.csv", text("0,1,1,0\n"), &["--bad-rows", "drop"], &["--bad-rows"]),
    ]
}

#[test]
fn logs_that_people_have_by_mistake_are_refused() {
    let cases = logs();
    assert!(cases.len() >= 60, "{}", cases.len());
    for (name, bytes, options, expected) in cases {
        let folder = Folder::new();
        folder.write(name, &bytes);
        let mut args = vec!["evaluate", name, "--features", "fourier:1"];
        args.extend(options);
        refused(&folder, &args, expected);
    }
}

/// A file by its name and contents, options, and what the refusal says.
type Mistake<'a> = (&'a str, Vec<u8>, &'a [&'a str], &'a [&'a str]);

#[test]
fn files_of_predict_that_people_have_by_mistake_are_refused() {
    let folder = Folder::new();
    folder.write("good.csv", GOOD);
    folder.run(&["evaluate", "good.csv", "--features", "polynomial:1", "--out", "w", "--quiet"]).exits(0);
    let head = "s_0,next_0\n";
    let cases: Vec<Mistake> = vec![
        ("a.csv", vec![], &[], &["there is no column `s_0`: an empty file"]),
        ("a.csv", b"x\n1\n".to_vec(), &[], &["there is no column `s_0`: the columns are `x`"]),
        ("a.csv", b"s_0,s_0\n1,2\n".to_vec(), &[], &["two columns are called `s_0`"]),
        ("a.csv", format!("{head}1,2\n3\n").into(), &[], &["line 3: 1 fields, but the header has 2"]),
        ("a.csv", format!("{head}x,2\n").into(), &[], &["line 2, column `s_0`: `x` is not a finite number"]),
        ("a.csv", format!("{head}1e999,2\n").into(), &[], &["line 2, column `s_0`: `1e999`"]),
        ("a.csv", format!("{head}\"1,2\n3,4\n").into(), &[], &["line 2: a quote that is opened there"]),
        ("a.csv", b"s_0|next_0\n1|2\n".to_vec(), &[], &["not by '|'"]),
        ("a.csv", b"s_0;next_0\n1,5;2\n1.5;2\n".to_vec(), &[], &["line 3: `1.5` has a decimal point, and `1,5` in line 2 a comma"]),
        ("a.csv", b"s_0;next_0\n1,234;2\n".to_vec(), &[], &["line 2: `1,234` is 1.234 or 1234"]),
        ("a.csv", b"PK\x03\x04".to_vec(), &[], &["a zip archive"]),
        ("a.csv", b"{}".to_vec(), &[], &["JSON"]),
        ("a.csv.gz", gzip(GOOD.repeat(50).as_bytes())[..60].to_vec(), &[], &["the file ends too early"]),
        ("a.csv.zst", zstd(GOOD.repeat(50).as_bytes())[..40].to_vec(), &[], &["the file ends too early"]),
        ("a.parquet", GOOD.into(), &[], &["not a readable Parquet file"]),
        ("a.csv", b"x\n1\n".to_vec(), &["--columns", "s_0=y"], &["there is no column `y` for `s_0`", "--columns"]),
        ("a.csv", b"x\n1\n".to_vec(), &["--columns", "s_0"], &["`s_0` is not NAME=FIELD"]),
    ];
    for (name, bytes, options, expected) in cases {
        folder.write(name, &bytes);
        let mut args = vec!["predict", "w", name];
        args.extend(options);
        refused(&folder, &args, expected);
        std::fs::remove_file(folder.path(name)).unwrap();
    }
}

#[test]
fn files_of_fit_that_people_have_by_mistake_are_refused() {
    let good = "x,y,target\n1,2,0\n3,4,1\n5,7,0\n2,2,1\n";
    let long = format!("{good}{}", "1,2,0\n3,4,1\n".repeat(200));
    let cases: Vec<(&str, Vec<u8>, &[&str])> = vec![
        ("a.csv", vec![], &["there are no names of columns"]),
        ("a.csv", b"x,target\n".to_vec(), &["a.csv: "]),
        ("a.csv", b"1,2\n3,4\n".to_vec(), &["line 1: `1` is a number where the name of a column is expected"]),
        ("a.csv", good.replace(',', "|").into(), &["not by '|'"]),
        ("a.csv", good.replace(',', ";").replace("3;4", "1.234,5;4").into(), &["line 3: `1.234,5` has separators of thousands"]),
        ("a.csv", good.replacen("3,4", "3", 1).into(), &["line 3: 2 fields, but the header has 3"]),
        ("a.csv", good.replacen("3,4", "3,red", 1).into(), &["line 3, column `y`: `red`"]),
        ("a.csv", good.replacen("3,4", "3,", 1).into(), &["line 3, column `y`: an empty field"]),
        ("a.csv", good.replacen("3,4", "3,nan", 1).into(), &["line 3, column `y`: `nan`"]),
        ("a.csv", good.replacen("3,4", "\"3,4", 1).into(), &["line 3: a quote that is opened there"]),
        ("a.csv", b"x,target\n\xff,1\n".to_vec(), &["line 2: not UTF-8"]),
        ("a.csv", b"\x93NUMPY\x01\x00".to_vec(), &["a NumPy array"]),
        ("a.csv", b"{\"x\": 1}".to_vec(), &["JSON"]),
        ("a.csv.gz", gzip(long.as_bytes())[..50].to_vec(), &["the file ends too early"]),
        ("a.csv.zst", zstd(long.as_bytes())[..30].to_vec(), &["the file ends too early"]),
        ("a.tsv", good.replace(',', "\t").replacen("3\t4", "3\tred", 1).into(), &["line 3, column `y`: `red`"]),
    ];
    for (name, bytes, expected) in cases {
        let folder = Folder::new();
        folder.write(name, &bytes);
        refused(&folder, &["fit", name, "--agents", "1"], expected);
    }
}
