//! `fedsa data`: exit statuses, what is printed, what is written.

#[path = "../../fedsa-data/tests/server/mod.rs"]
mod server;

use crate::common::{Folder, Output, finish};
use server::{Answer, Server};

/// Runs the program with a folder of data sets.
fn with_data(folder: &Folder, data: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Output {
    let mut command = folder.command(args);
    command.env("FEDSA_DATA", data);
    finish(command)
}

#[test]
fn the_list_names_sets_sources_and_checksums() {
    let folder = Folder::new();
    let text = folder.run(&["data", "list"]).exits(0).stdout;
    for words in ["libsvm/w8a ", "fashion-mnist-unordered ", "no canonical source: --from DIR", "the collection publishes none"] {
        assert!(text.contains(words), "{text}");
    }
    let list: serde_json::Value = serde_json::from_str(&folder.run(&["data", "list", "--json"]).exits(0).stdout).unwrap();
    let w8a = list.as_array().unwrap().iter().find(|set| set["name"] == "libsvm/w8a").unwrap();
    assert_eq!(w8a["files"][0]["url"], "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/w8a");
    assert_eq!((&w8a["has_source"], w8a["files"][0]["sha256"].as_str().unwrap().len()), (&true.into(), 64));
}

#[test]
fn the_commands_have_manual_pages_and_completions() {
    let folder = Folder::new();
    folder.run(&["man", "data"]).exits(0).says("fedsa\\-data ");
    folder.run(&["man", "data", "fetch"]).exits(0).says("fedsa\\-data\\-fetch").says("url\\-base");
    let message = folder.run(&["man", "data", "get"]).exits(2).message();
    assert!(message.contains("there is no command `get`") && message.contains("list, fetch, verify"), "{message}");
    folder.run(&["completions", "bash"]).exits(0).says("url-base");
    folder.run(&["data"]).exits(2);
}

#[test]
fn fetching_says_what_is_wrong_and_leaves_nothing() {
    let folder = Folder::new();
    let refused = |args: &[&str], status: i32, words: &[&str]| {
        let output = folder.run(args).exits(status);
        let message = output.message();
        words.iter().for_each(|word| assert!(message.contains(word), "`{word}` is not in {message}"));
    };
    refused(&["data", "fetch", "mnist"], 2, &["there is no public data set `mnist`", "libsvm/w8a"]);
    refused(&["data", "fetch"], 2, &["<NAME>"]);
    refused(&["data", "fetch", "libsvm/w8a", "--timeout", "0"], 2, &["not a number of seconds"]);
    refused(&["data", "fetch", "million-song"], 2, &["no canonical public source", "--from DIR"]);
    refused(&["data", "fetch", "million-song", "--from", "nowhere"], 2, &["there is neither million-song/timbre.csv.gz"]);
    let size = 1_164_628;
    for (answer, status, words) in [
        (Answer::Status(404), 2, &["the server answers 404 Not Found", "--url-base"][..]),
        (Answer::Other(vec![0; size]), 2, &["libsvm/a9a.t: the SHA-256 of http://127.0.0.1", "is expected"]),
        (Answer::Other(vec![0; 7]), 2, &["has 7 bytes, and 1164628 are expected"]),
    ] {
        let server = Server::new(vec![0; size], vec![answer]);
        refused(&["data", "fetch", "libsvm/a9a.t", "--url-base", &server.url], status, words);
    }
    let files = folder.everything();
    assert!(files.is_empty(), "{:?}", files.iter().map(|(path, ..)| path).collect::<Vec<_>>());
    // A connection that is lost is a failure of the machine; what came is kept.
    let server = Server::new(vec![0; size], vec![Answer::Cut("\"one\"", 1000), Answer::Cut("\"one\"", 0)]);
    let mut command = folder.command(&["data", "fetch", "libsvm/a9a.t", "--timeout", "2"]);
    command.env("FEDSA_DATA_URL", &server.url);
    let message = finish(command).exits(3).message();
    assert!(message.contains("1.0 kB of 1.2 MB are there: the same command goes on from there"), "{message}");
    assert_eq!(folder.read("cache/fedsa/libsvm/a9a.t.part").len(), 1000);
}

#[test]
fn verifying_without_data_says_so() {
    let folder = Folder::new();
    let text = folder.run(&["data", "verify"]).exits(1).says("not there: libsvm/a9a, ").says("0 files, 0 not as expected").stdout;
    let cache = folder.path("cache/fedsa").display().to_string();
    assert!(text.contains(&format!("no public data set is in {cache}; `fedsa data fetch NAME`")), "{text}");
    let text = with_data(&folder, folder.path("nowhere"), &["data", "verify"]).exits(1).stdout;
    assert!(text.contains(&format!("{} or in {cache}; ", folder.path("nowhere").display())), "{text}");
    let json: serde_json::Value = serde_json::from_str(&folder.run(&["data", "verify", "--json"]).exits(1).stdout).unwrap();
    assert_eq!((&json["files"], &json["searched"]), (&serde_json::json!([]), &serde_json::json!([cache])));
    folder.run(&["data", "verify", "libsvm/a9a"]).exits(1).says("libsvm/a9a: missing");
    folder.write("cache/fedsa/libsvm/a9a", "something else");
    let text = folder.run(&["data", "verify"]).exits(1).stdout;
    assert!(text.contains("libsvm/a9a: differs: ") && text.contains("1 file, 1 not as expected"), "{text}");
    let json: serde_json::Value = serde_json::from_str(&folder.run(&["data", "verify", "libsvm", "--json"]).exits(1).stdout).unwrap();
    assert_eq!((&json["files"][0]["state"], &json["files"][1]["state"]), (&"differs".into(), &"missing".into()));
    assert!(folder.run(&["data", "verify", "x"]).exits(2).message().contains("there is no public data set `x`"));
}

#[test]
fn the_data_at_hand_are_verified_copied_and_downloaded() {
    let Some(data) = fedsa_testing::data() else { return };
    let folder = Folder::new();
    let text = with_data(&folder, &data, &["data", "verify"]).exits(0).stdout;
    assert!(text.contains("libsvm/w8a: ok: ") && text.contains("not there: fashion-mnist\n"), "{text}");
    assert!(text.contains("fashion-mnist-unordered/train-images-idx3-ubyte.gz: ok: "), "{text}");
    // The copy without its order is not the official data set.
    let text = with_data(&folder, &data, &["data", "verify", "fashion-mnist"]).exits(1).stdout;
    assert!(text.contains("differs") && text.contains("it is the file of fashion-mnist-unordered"), "{text}");

    let from = data.to_str().unwrap();
    for name in ["million-song", "femnist-digits", "fashion-mnist-unordered"] {
        folder.run(&["data", "fetch", name, "--from", from]).exits(0).says("fetched, checksum as expected");
        folder.run(&["data", "verify", name]).exits(0).says("0 not as expected");
        folder.run(&["data", "fetch", name, "--from", from]).exits(0).says("there already, checksum as expected");
    }
    with_data(&folder, &data, &["data", "fetch", "libsvm/w8a"]).exits(0).says("there already");

    let file = std::fs::read(std::path::Path::new(&data).join("libsvm/a9a.t")).unwrap();
    let server = Server::new(file.clone(), vec![Answer::Cut("\"one\"", 500_000), Answer::Good("\"one\"")]);
    let output = folder.run(&["data", "fetch", "libsvm/a9a.t", "--url-base", &server.url, "--json"]).exits(0);
    assert!(output.stderr.contains("the connection was lost") || output.stderr.contains("ended too early"), "{}", output.stderr);
    let json: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&json[0]["file"], &json[0]["fetched"]), (&"libsvm/a9a.t".into(), &true.into()));
    assert_eq!(folder.read("cache/fedsa/libsvm/a9a.t"), file);
    assert_eq!(server.requests().len(), 2);
}
