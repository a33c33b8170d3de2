//! The text form against the builder, and matching against the definition.

use proptest::prelude::*;

use super::*;

/// A worker of which everything can be chosen.
#[derive(Clone, Debug)]
struct Fake {
    wid: String,
    host: String,
    version: String,
    labels: Vec<String>,
    state: WorkerState,
    health: Health,
    age: Duration,
    up: Duration,
    idle: Option<Duration>,
    rss_kb: Option<u64>,
    leases: u32,
    cordoned: bool,
}

fn fake() -> Fake {
    Fake {
        wid: "4qpc2443vpvai".into(),
        host: "app-1".into(),
        version: "1.2.3".into(),
        labels: vec!["blue".into(), "zone=eu".into()],
        state: WorkerState::Quiet,
        health: Health::Live,
        age: Duration::from_secs(30),
        up: Duration::from_secs(86_400),
        idle: Some(Duration::from_secs(600)),
        rss_kb: Some(512 * 1024),
        leases: 2,
        cordoned: false,
    }
}

impl Facts for Fake {
    fn wid(&self) -> &str {
        &self.wid
    }
    fn host(&self) -> &str {
        &self.host
    }
    fn version(&self) -> &str {
        &self.version
    }
    fn has_label(&self, glob: &Glob) -> bool {
        self.labels.iter().any(|label| glob.matches(label))
    }
    fn state(&self) -> WorkerState {
        self.state
    }
    fn health(&self) -> Health {
        self.health
    }
    fn age(&self) -> Duration {
        self.age
    }
    fn up(&self) -> Duration {
        self.up
    }
    fn idle(&self) -> Option<Duration> {
        self.idle
    }
    fn rss_kb(&self) -> Option<u64> {
        self.rss_kb
    }
    fn leases(&self) -> u32 {
        self.leases
    }
    fn cordoned(&self) -> bool {
        self.cordoned
    }
}

fn read(text: &str) -> Selector {
    text.parse().unwrap_or_else(|error: SelectorError| panic!("{}", error.render(text)))
}

#[test]
fn every_condition_holds_and_fails() {
    let worker = fake();
    let holds = [
        "all",
        "wid=4qpc2443vpvai",
        "wid=4qpc*",
        "wid=*vai",
        "host=app-?",
        "host!=app-2",
        "version=1.*",
        "label=blue",
        "label=zone=eu",
        "label = 'zone=*'",
        "state=quiet",
        "state>running",
        "state<=quiet",
        "health=live",
        "health!=late",
        "age>=30s",
        "age<1m",
        "age=30000ms",
        "up>23h",
        "up=1d",
        "idle=10m",
        "rss=512M",
        "rss>511M",
        "rss<1g",
        "leases>0",
        "leases==2",
        "leases!=3",
        "not cordoned",
    ];
    for text in holds {
        assert!(read(text).holds(&worker), "{text}");
        assert!(!read(&format!("not ({text})")).holds(&worker), "not {text}");
    }
    let fails = [
        "wid=4qpc",
        "wid=4QPC*",
        "host=app",
        "host=App-1",
        "version=1",
        "label=green",
        "state=running",
        "state>quiet",
        "health=late",
        "age>30s",
        "up<1d",
        "idle>10m",
        "rss>512M",
        "leases<2",
        "cordoned",
    ];
    for text in fails {
        assert!(!read(text).holds(&worker), "{text}");
    }
    assert!(read("cordoned").holds(&Fake { cordoned: true, ..worker }));
}

#[test]
fn what_is_not_known_compares_with_nothing() {
    let worker = Fake { rss_kb: None, idle: None, labels: Vec::new(), ..fake() };
    for text in ["rss<1G", "rss>=0K", "idle>=0s", "idle<1d", "label=*"] {
        assert!(!read(text).holds(&worker), "{text}");
    }
    for text in ["rss!=5K", "not idle>1s", "label!=blue"] {
        assert!(read(text).holds(&worker), "{text}");
    }
}

#[test]
fn binds_as_written() {
    for (text, shown) in [
        ("all or all and not cordoned", "all or all and not cordoned"),
        ("(all or cordoned) and all", "(all or cordoned) and all"),
        ("((all) and (cordoned and all))", "all and cordoned and all"),
        ("not (all and cordoned)", "not (all and cordoned)"),
        ("not not not all", "not all"),
        ("NOT(ALL)OR(Cordoned)", "not all or cordoned"),
        ("host!=a", "not host=a"),
        ("STATE >= Quiet", "state>=quiet"),
        ("label=and and label=or", "label=and and label=or"),
        ("\n age\t>\t90s ", "age>90s"),
        ("age<3600s and up>48h and idle=1500ms", "age<1h and up>2d and idle=1500ms"),
        ("rss>2048K and rss<1024m", "rss>2M and rss<1G"),
        ("wid='a b'", "wid=\"a b\""),
        (r#"wid="a\*b*""#, r#"wid="a\*b*""#),
        (r#"label="=x""#, r#"label="=x""#),
        (r#"host="""#, r#"host="""#),
        (r#"label="\u{7}\n\u{202e}""#, r#"label="\u{7}\u{a}\u{202e}""#),
        ("host=é?", "host=é?"),
    ] {
        assert_eq!(read(text).to_string(), shown);
        assert_eq!(read(shown), read(text));
    }
}

#[test]
fn an_error_points_at_the_character() {
    let deep = format!("{}all", "(".repeat(65));
    for (text, at, word) in [
        ("", 0, "expected a condition"),
        ("   ", 3, "expected a condition"),
        ("label=blue and stat=quiet", 15, "expected a condition"),
        ("and", 0, "expected a condition"),
        ("all all", 4, "expected `and`"),
        ("all)", 3, "expected `and`"),
        ("(all", 4, "or `)`"),
        ("label=blue&&cordoned", 10, "expected `and`"),
        ("label", 5, "expected `=`"),
        ("label>blue", 5, "expected `=` or `!=`"),
        ("label=", 6, "expected a text"),
        ("label=>x", 6, "expected a text"),
        ("label=\"blue", 6, "not closed"),
        ("label=\"b\\d\"", 9, "behind the"),
        ("label=\"\\u{d800}\"", 8, "code"),
        ("label=\"\n\"", 7, "control"),
        ("state=gone", 6, "running, quiet or terminate"),
        ("health<live", 6, "`=` or `!=`"),
        ("age>30", 6, "a unit: d"),
        ("age>5M", 5, "a unit: d"),
        ("age>1.5h", 5, "a unit: d"),
        ("age>s", 4, "a duration"),
        ("age>-1s", 4, "a duration"),
        ("rss>512", 7, "a unit: K"),
        ("leases>4K", 8, "without a unit"),
        ("leases>4294967296", 7, "too large"),
        ("age>340282366920938463463374607431768211456s", 4, "too large"),
        ("age>18446744073709551616s", 4, "too large"),
        ("rss>18014398509481984M", 4, "too large"),
        (&deep, 64, "more than 64"),
    ] {
        let error = text.parse::<Selector>().expect_err(text);
        assert_eq!(error.at(), at, "{text}: {error}");
        assert!(error.to_string().contains(word), "{text}: {error}");
        assert!(!error.to_string().contains('\n'));
        let rendered = error.render(text);
        let lines: Vec<_> = rendered.lines().collect();
        assert_eq!(lines.len(), 2, "{rendered}");
    }
}

#[test]
fn bounds_are_kept() {
    let at_limit = format!("{}all{}", "(".repeat(64), ")".repeat(64));
    assert_eq!(read(&at_limit), Selector::all());
    let long = format!("label={}", "x".repeat(Selector::MAX_LEN - 6));
    assert_eq!(read(&long).to_string(), long);
    let longer = format!("{long}x");
    let error = longer.parse::<Selector>().unwrap_err();
    assert_eq!(error.fault(), &SelectorFault::TooLong { len: Selector::MAX_LEN + 1 });
    assert!(error.render(&longer).len() < 300);
    assert_eq!(read(&format!("{}all", "not ".repeat(1000))), Selector::all());
}

#[test]
fn the_caret_stands_below_the_character() {
    let text = "label=\"über\" && all";
    let error = text.parse::<Selector>().unwrap_err();
    assert_eq!(error.render(text), "label=\"über\" && all\n             ^ expected `and`, `or` or the end");
    // Some other text than the one that was parsed.
    assert!(error.render("é").contains('^'));
    assert!(error.render(&"é".repeat(40)).contains('^'));
}

#[test]
fn a_deep_one_overflows_no_stack() {
    let mut selector = Selector::all();
    for _ in 0..2_000 {
        selector = !selector.or(Selector::cordoned()).and(Selector::all());
    }
    assert!(selector.clone().holds(&fake()));
    assert!(selector.to_string().parse::<Selector>().is_err());
    assert_eq!(selector.clone(), selector);
}

/// The plain tree that a selector stands for.
#[derive(Clone, Debug)]
enum Tree {
    Leaf(Term),
    Not(Box<Tree>),
    And(Box<Tree>, Box<Tree>),
    Or(Box<Tree>, Box<Tree>),
}

impl Tree {
    fn build(&self) -> Selector {
        match self {
            Tree::Leaf(term) => Selector::term(term.clone()),
            Tree::Not(inner) => !inner.build(),
            Tree::And(left, right) => left.build().and(right.build()),
            Tree::Or(left, right) => left.build().or(right.build()),
        }
    }

    fn holds(&self, worker: &Fake) -> bool {
        match self {
            Tree::Leaf(term) => term.matches(worker),
            Tree::Not(inner) => !inner.holds(worker),
            Tree::And(left, right) => left.holds(worker) && right.holds(worker),
            Tree::Or(left, right) => left.holds(worker) || right.holds(worker),
        }
    }
}

fn compares() -> impl Strategy<Value = Compare> {
    use Compare::{AtLeast, AtMost, Equal, Less, More};
    prop::sample::select(vec![Less, AtMost, Equal, AtLeast, More])
}

fn terms() -> impl Strategy<Value = Term> {
    let texts = prop::sample::select(vec![Text::Wid, Text::Host, Text::Label, Text::Version]);
    let globs = prop_oneof![
        "[ab*?]{0,3}".prop_map(|pattern| Glob::pattern(&pattern)),
        any::<String>().prop_map(|text| Glob::exact(&text)),
        any::<String>().prop_map(|text| Glob::pattern(&text)),
        "(and|or|not|all|=|==|a=b|\"|'|\\\\|\\(| |\u{202e}|\n|,)".prop_map(|text| Glob::exact(&text)),
    ];
    let spans = prop::sample::select(vec![Span::Age, Span::Up, Span::Idle]);
    let lengths = prop_oneof![
        (0..4u64).prop_map(Duration::from_secs),
        any::<u64>().prop_map(Duration::from_nanos),
        (any::<u64>(), 0..1_000_000_000u32).prop_map(|(seconds, nanos)| Duration::new(seconds, nanos)),
    ];
    prop_oneof![
        Just(Term::All),
        Just(Term::Cordoned),
        (texts, globs).prop_map(|(text, glob)| Term::Text(text, glob)),
        (compares(), 0..3usize).prop_map(|(compare, state)| Term::State(compare, WorkerState::ALL[state])),
        any::<bool>().prop_map(|live| Term::Health(if live { Health::Live } else { Health::Late })),
        (spans, compares(), lengths).prop_map(|(span, compare, length)| Term::Span(span, compare, length)),
        (compares(), prop_oneof![0..4u64, any::<u64>()]).prop_map(|(compare, kb)| Term::Rss(compare, kb)),
        (compares(), prop_oneof![0..4u32, any::<u32>()])
            .prop_map(|(compare, count)| Term::Leases(compare, count)),
    ]
}

fn trees() -> impl Strategy<Value = Tree> {
    terms().prop_map(Tree::Leaf).prop_recursive(5, 24, 2, |inner| {
        prop_oneof![
            inner.clone().prop_map(|tree| Tree::Not(Box::new(tree))),
            (inner.clone(), inner.clone()).prop_map(|(left, right)| Tree::And(left.into(), right.into())),
            (inner.clone(), inner).prop_map(|(left, right)| Tree::Or(left.into(), right.into())),
        ]
    })
}

fn fakes() -> impl Strategy<Value = Fake> {
    let numbers = (0..4u64, 0..4u64, prop::option::of(0..4u64), prop::option::of(0..4u64), 0..4u32);
    let texts = ("[ab]{0,2}", "[ab]{0,2}", "[ab]{0,2}", prop::collection::vec("[ab]{0,2}", 0..3));
    (texts, numbers, 0..3usize, any::<bool>(), any::<bool>()).prop_map(
        |(texts, numbers, state, live, cordoned)| Fake {
            wid: texts.0,
            host: texts.1,
            version: texts.2,
            labels: texts.3,
            state: WorkerState::ALL[state],
            health: if live { Health::Live } else { Health::Late },
            age: Duration::from_secs(numbers.0),
            up: Duration::from_secs(numbers.1),
            idle: numbers.2.map(Duration::from_secs),
            rss_kb: numbers.3,
            leases: numbers.4,
            cordoned,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn matches_as_the_tree_it_stands_for(tree in trees(), worker in fakes()) {
        prop_assert_eq!(tree.build().holds(&worker), tree.holds(&worker));
    }

    #[test]
    fn what_is_rendered_parses_to_the_same(tree in trees()) {
        let selector = tree.build();
        let text = selector.to_string();
        prop_assert!(!text.chars().any(char::is_control), "{:?}", text);
        prop_assume!(text.len() <= Selector::MAX_LEN);
        let parsed = text.parse::<Selector>();
        prop_assert_eq!(parsed.as_ref(), Ok(&selector), "{}", text);
        prop_assert_eq!(parsed.map(|parsed| parsed.to_string()), Ok(text));
    }

    #[test]
    fn any_text_parses_or_says_where_not(
        text in prop_oneof![
            any::<String>(),
            "((not |and |or |\\(|\\)|all|label|age|rss|=|!=|>|<|\"|\\\\|\\*|30s|5M|é| ){0,12})",
        ]
    ) {
        match text.parse::<Selector>() {
            Ok(selector) => prop_assert_eq!(selector.to_string().parse::<Selector>(), Ok(selector)),
            Err(error) => {
                prop_assert!(text.is_char_boundary(error.at()), "{}", error);
                prop_assert_eq!(error.render(&text).lines().count(), 2);
            }
        }
    }
}
