//! The public data sets that fedsa knows by name.

/// A file of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicFile {
    /// Its path in the folder of data sets, and below a mirror.
    pub path: &'static str,
    /// Its canonical address, if there is one.
    pub url: Option<&'static str>,
    /// Its size in bytes.
    pub size: u64,
    /// The SHA-256 of its bytes, hexadecimal.
    pub sha256: &'static str,
}

/// A data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublicSet {
    /// The name, which commands accept as data.
    pub name: &'static str,
    /// A description.
    pub what: &'static str,
    /// The origin.
    pub origin: &'static str,
    /// The origin of the checksums.
    pub checksums: &'static str,
    /// The files.
    pub files: &'static [PublicFile],
    /// Another folder that may contain the files of the set.
    pub also_in: Option<&'static str>,
}

impl PublicSet {
    /// The set with this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        SETS.iter().find(|set| set.name == name)
    }

    /// Whether all files have a canonical source.
    pub fn has_source(&self) -> bool {
        self.files.iter().all(|file| file.url.is_some())
    }

    /// The size of all files in bytes.
    pub fn size(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    /// The set that has a file with this checksum, and the file.
    pub fn with_file(sha256: &str) -> Option<(&'static Self, &'static PublicFile)> {
        SETS.iter().find_map(|set| Some((set, set.files.iter().find(|file| file.sha256 == sha256)?)))
    }
}

const LIBSVM: &str = "the LIBSVM collection of data sets (Chang and Lin), which states no licence";
const COMPUTED_LIBSVM: &str = "computed from a copy found in a public repository; the collection publishes none";
const COMPUTED: &str = "computed from the copy that the experiments of this project use";

/// All data sets.
pub const SETS: &[PublicSet] = &[
    PublicSet {
        name: "libsvm/a9a",
        what: "adult income, 32,561 rows of 123 binary features, 2 classes",
        origin: LIBSVM,
        checksums: COMPUTED_LIBSVM,
        files: LIBSVM_A9A,
        also_in: None,
    },
    PublicSet {
        name: "libsvm/a9a.t",
        what: "test rows of a9a: 16,281",
        origin: LIBSVM,
        checksums: COMPUTED_LIBSVM,
        files: LIBSVM_A9A_T,
        also_in: None,
    },
    PublicSet {
        name: "libsvm/w8a",
        what: "web pages, 49,749 rows of 300 binary features, 2 classes (1,479 positive)",
        origin: LIBSVM,
        checksums: COMPUTED_LIBSVM,
        files: LIBSVM_W8A,
        also_in: None,
    },
    PublicSet {
        name: "libsvm/w8a.t",
        what: "test rows of w8a: 14,951",
        origin: LIBSVM,
        checksums: COMPUTED_LIBSVM,
        files: LIBSVM_W8A_T,
        also_in: None,
    },
    PublicSet {
        name: "libsvm/phishing",
        what: "phishing web sites, 11,055 rows of 68 features, 2 classes",
        origin: LIBSVM,
        checksums: COMPUTED_LIBSVM,
        files: LIBSVM_PHISHING,
        also_in: None,
    },
    PublicSet {
        name: "fashion-mnist",
        what: "70,000 images of clothes, 28 x 28, 10 classes: 60,000 to train (fashion-mnist/train), 10,000 to test (fashion-mnist/t10k)",
        origin: "Zalando Research, github.com/zalandoresearch/fashion-mnist, MIT",
        checksums: "SHA-256 and sizes as TensorFlow Datasets publishes them (url_checksums/fashion_mnist.txt), for the files whose MD5 sums the \
                    project's README and torchvision publish",
        files: FASHION_MNIST,
        also_in: None,
    },
    PublicSet {
        name: "fashion-mnist-unordered",
        what: "the 70,000 images of Fashion-MNIST in another order: which were for training and which for testing is lost, so no published test accuracy compares",
        origin: "a repacked copy of Fashion-MNIST (Zalando Research, MIT)",
        checksums: COMPUTED,
        files: FASHION_MNIST_UNORDERED,
        also_in: Some("fashion-mnist"),
    },
    PublicSet {
        name: "femnist-digits",
        what: "5,997 handwritten digits, 28 x 28, of 12 writers (column writers)",
        origin: "a public subset of FEMNIST",
        checksums: COMPUTED,
        files: FEMNIST_DIGITS,
        also_in: None,
    },
    PublicSet {
        name: "million-song",
        what: "4,680 songs: the year (1926 to 2010, column year) and 54 timbre features; not the UCI file",
        origin: "a public subset of the Million Song Dataset",
        checksums: COMPUTED,
        files: MILLION_SONG,
        also_in: None,
    },
    PublicSet {
        name: "transitions/cartpole",
        what: "8 agents x 20,000 transitions of CartPole with 4 state variables, physics that differ by agent, one fixed policy",
        origin: "made for this project from Gymnasium 1.4.0",
        checksums: COMPUTED,
        files: TRANSITIONS_CARTPOLE,
        also_in: None,
    },
    PublicSet {
        name: "transitions/mountaincar",
        what: "8 agents x 20,000 transitions of MountainCar with 2 state variables, physics that differ by agent, one fixed policy",
        origin: "made for this project from Gymnasium 1.4.0",
        checksums: COMPUTED,
        files: TRANSITIONS_MOUNTAINCAR,
        also_in: None,
    },
];

const LIBSVM_A9A: &[PublicFile] = &[PublicFile {
    path: "libsvm/a9a",
    url: Some("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/a9a"),
    size: 2_329_875,
    sha256: "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
}];

const LIBSVM_A9A_T: &[PublicFile] = &[PublicFile {
    path: "libsvm/a9a.t",
    url: Some("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/a9a.t"),
    size: 1_164_628,
    sha256: "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
}];

const LIBSVM_W8A: &[PublicFile] = &[PublicFile {
    path: "libsvm/w8a",
    url: Some("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/w8a"),
    size: 3_478_238,
    sha256: "6a9fa8fd5f524303240a5db07d4b3d4a51e8b7b4b20a914105d8e3e8c81640f2",
}];

const LIBSVM_W8A_T: &[PublicFile] = &[PublicFile {
    path: "libsvm/w8a.t",
    url: Some("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/w8a.t"),
    size: 1_045_870,
    sha256: "618929ecb01bebb841daec4cae4aa07b97832d29b08652452775598929547fde",
}];

const LIBSVM_PHISHING: &[PublicFile] = &[PublicFile {
    path: "libsvm/phishing",
    url: Some("https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/phishing"),
    size: 3_620_168,
    sha256: "0cf66ef36604c393da9359b2e5d894a2df8aee31fd184633cefa138add2ef08a",
}];

const FASHION_MNIST: &[PublicFile] = &[
    PublicFile {
        path: "fashion-mnist/t10k-images-idx3-ubyte.gz",
        url: Some("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-images-idx3-ubyte.gz"),
        size: 4_422_102,
        sha256: "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    },
    PublicFile {
        path: "fashion-mnist/t10k-labels-idx1-ubyte.gz",
        url: Some("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/t10k-labels-idx1-ubyte.gz"),
        size: 5_148,
        sha256: "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
    PublicFile {
        path: "fashion-mnist/train-images-idx3-ubyte.gz",
        url: Some("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/train-images-idx3-ubyte.gz"),
        size: 26_421_880,
        sha256: "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    },
    PublicFile {
        path: "fashion-mnist/train-labels-idx1-ubyte.gz",
        url: Some("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/train-labels-idx1-ubyte.gz"),
        size: 29_515,
        sha256: "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    },
];

const FASHION_MNIST_UNORDERED: &[PublicFile] = &[
    PublicFile {
        path: "fashion-mnist-unordered/t10k-images-idx3-ubyte.gz",
        url: None,
        size: 4_361_391,
        sha256: "02bf9b13ade88d630a304a66e2f50196ee0138118a395b3ec7225dbae4008b77",
    },
    PublicFile {
        path: "fashion-mnist-unordered/t10k-labels-idx1-ubyte.gz",
        url: None,
        size: 5_125,
        sha256: "ac75db883c76774070b5d75f19da907d62f6c298d57eb2a041cbef3fc7c633cf",
    },
    PublicFile {
        path: "fashion-mnist-unordered/train-images-idx3-ubyte.gz",
        url: None,
        size: 26_218_849,
        sha256: "cd123b1701764faa348bf767ba642bfb0d2ccb74f322db6b3bb8fe4d69b852c0",
    },
    PublicFile {
        path: "fashion-mnist-unordered/train-labels-idx1-ubyte.gz",
        url: None,
        size: 29_492,
        sha256: "737c771bbc829c32bef39c6387a50d11e4bfbecf00cd45447806c886a2f9b756",
    },
];

const FEMNIST_DIGITS: &[PublicFile] = &[
    PublicFile {
        path: "femnist-digits/images-idx3-ubyte.gz",
        url: None,
        size: 632_464,
        sha256: "d95f313543549b9bd04c2415b8fa36dd879ccd67b65a02a9092093d517002b0e",
    },
    PublicFile {
        path: "femnist-digits/labels-idx1-ubyte.gz",
        url: None,
        size: 226,
        sha256: "0016914a9af2ccef499030fb9ef6480a5cd334f95b8d26af2ed9f23126a8e06f",
    },
    PublicFile {
        path: "femnist-digits/writers-idx1-ubyte.gz",
        url: None,
        size: 92,
        sha256: "313fb9e7c64ea4c9c4d8911db24d5eca90c71f71abab4098208cf96a9c2db4c1",
    },
];

const MILLION_SONG: &[PublicFile] = &[PublicFile {
    path: "million-song/timbre.csv.gz",
    url: None,
    size: 2_324_122,
    sha256: "6adcadfd2b64bb5f15ac509877479761c7586df937e7184860a7766835bfd1a8",
}];

const TRANSITIONS_CARTPOLE: &[PublicFile] = &[
    PublicFile {
        path: "transitions/cartpole/agent_0.parquet",
        url: None,
        size: 900_013,
        sha256: "4a5cfdaa17ca287e31df07efa4ce2eeadcb540b6c95617bc84f199abd00ceba5",
    },
    PublicFile {
        path: "transitions/cartpole/agent_1.parquet",
        url: None,
        size: 902_541,
        sha256: "ad4a36ff6d2fd4d5fdb124dfc774ad08c1b3ec199ef1c45cef9057794b598493",
    },
    PublicFile {
        path: "transitions/cartpole/agent_2.parquet",
        url: None,
        size: 897_689,
        sha256: "cb672ec76bf223ff9a308bd755d402055ad85761ee329d78b5e55f482e27e134",
    },
    PublicFile {
        path: "transitions/cartpole/agent_3.parquet",
        url: None,
        size: 899_658,
        sha256: "6958d2db329fa3d3e17f489c3f93369b4479ea8d96475697efb2da7433b2ba53",
    },
    PublicFile {
        path: "transitions/cartpole/agent_4.parquet",
        url: None,
        size: 898_551,
        sha256: "10f71f2753e77521e80eb6d024d43869d8f394142f7876090ad8665ae6027597",
    },
    PublicFile {
        path: "transitions/cartpole/agent_5.parquet",
        url: None,
        size: 899_908,
        sha256: "562d322bca98034a3d9b52b75491db6c1c09bd788fb052db50ab8608ba45eb01",
    },
    PublicFile {
        path: "transitions/cartpole/agent_6.parquet",
        url: None,
        size: 899_483,
        sha256: "f7c0f4cf2afb94239b0ab7d4e77064a897c0b62f72296607efb9f8fe70787aab",
    },
    PublicFile {
        path: "transitions/cartpole/agent_7.parquet",
        url: None,
        size: 898_306,
        sha256: "bc9ddd714cd5001d4c00b5678cbebc26cfc0cfb15d551b1ca43ec50cf7585c37",
    },
];

const TRANSITIONS_MOUNTAINCAR: &[PublicFile] = &[
    PublicFile {
        path: "transitions/mountaincar/agent_0.parquet",
        url: None,
        size: 433_465,
        sha256: "3d49eb99c1984f5ca8c941200490c4d76f8a5abb126a28813d8de50ef1a39c1b",
    },
    PublicFile {
        path: "transitions/mountaincar/agent_1.parquet",
        url: None,
        size: 433_615,
        sha256: "ab0eced419d2797c6fc8e0a90c28486f05cfd24be44d3f9ab8d8b1142050a5f0",
    },
    PublicFile {
        path: "transitions/mountaincar/agent_2.parquet",
        url: None,
        size: 434_316,
        sha256: "9297071c11a5e81841ab566ba3ab1bb2a85aca92e7e243d2f214d8cc592acb76",
    },
    PublicFile {
        path: "transitions/mountaincar/agent_3.parquet",
        url: None,
        size: 432_306,
        sha256: "b698cc824537fa64e72474ff6cc620f98255e409d7f501122c641c750480c664",
    },
    PublicFile {
        path: "transitions/mountaincar/agent_4.parquet",
        url: None,
        size: 431_375,
        sha256: "375088fc51d140c716f73723a4402fc3ce4c119da170cde529712fb675fe7bbf",
    },
    PublicFile {
        path: "transitions/mountaincar/agent_5.parquet",
        url: None,
        size: 426_800,
        sha256: "ddc97ba6f2ee8f3affa4b4798b4cb5babe060c5974f68f209b17d418ccb3b609",
    },
    PublicFile {
        path: "transitions/mountaincar/agent_6.parquet",
        url: None,
        size: 430_480,
        sha256: "02fe1b314e33e4a89b28e3af0f102c051d004de399ab09fb9be4715c72150ea6",
    },
    PublicFile {
        path: "transitions/mountaincar/agent_7.parquet",
        url: None,
        size: 430_296,
        sha256: "f607ca7a122fce18026ab6dfc8a5b4ec6b18d86e6d2f3be111c1580485f4a0c5",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_well_formed_and_distinct() {
        let mut names = std::collections::BTreeSet::new();
        for set in SETS {
            assert!(names.insert(set.name) && !set.files.is_empty() && PublicSet::named(set.name) == Some(set));
            for file in set.files {
                assert!(file.path == set.name || file.path.starts_with(&format!("{}/", set.name)), "{}", file.path);
                assert!(file.sha256.len() == 64 && file.sha256.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
                assert!(file.size > 0 && file.url.is_none_or(|url| url.ends_with(file.path.rsplit('/').next().unwrap())));
                assert_eq!(PublicSet::with_file(file.sha256), Some((set, file)), "no two files are the same");
            }
        }
        assert_eq!(PublicSet::named("mnist"), None);
    }
}
