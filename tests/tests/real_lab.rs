//! The lab itself: its layouts come up, answer the admin API, and survive what tests do to them.

use anyhow::Result;
use geminga_tests::lab::{self, Admin, Lab};
use std::time::{Duration, Instant};

#[test]
fn a_standalone_keeps_a_partitioned_topic_over_a_kill() -> Result<()> {
    if !lab::is_enabled("a_standalone_keeps_a_partitioned_topic_over_a_kill") {
        return Ok(());
    }
    let mut lab = Lab::scratch("standalone")?;
    let site = lab.standalone()?;
    let admin = site.admin();
    let topic = "persistent://public/default/kept";
    admin.create_partitioned_topic(topic, 4)?;
    lab.kill("standalone")?;
    assert!(admin.partitions(topic).is_err(), "a killed broker answers nothing");
    lab.restart("standalone")?;
    assert_eq!(admin.partitions(topic)?, 4);
    Ok(())
}

#[test]
fn a_secured_standalone_refuses_who_shows_nothing() -> Result<()> {
    if !lab::is_enabled("a_secured_standalone_refuses_who_shows_nothing") {
        return Ok(());
    }
    let mut lab = Lab::scratch("secure")?;
    let site = lab.standalone_secure()?;
    site.admin().create_topic("persistent://public/default/mine")?;
    let anyone = Admin::new(&site.admin_url, None);
    let error = anyone.create_topic("persistent://public/default/theirs").expect_err("no token was shown");
    assert!(error.to_string().contains("401"), "{error:#}");
    let expired = lab.credentials()?.token("admin", Some(Duration::ZERO));
    assert!(Admin::new(&site.admin_url, Some(&expired)).clusters().is_err());
    Ok(())
}

#[test]
fn topics_of_a_killed_broker_move_to_the_other() -> Result<()> {
    if !lab::is_enabled("topics_of_a_killed_broker_move_to_the_other") {
        return Ok(());
    }
    let mut lab = Lab::scratch("cluster")?;
    let sites = lab.cluster(2)?;
    let (first, second) = (sites[0].admin(), sites[1].admin());
    let topic = "persistent://public/default/moving";
    first.create_partitioned_topic(topic, 8)?;
    assert_eq!(second.partitions(topic)?, 8);
    for index in 0..8 {
        first.owner(&format!("{topic}-partition-{index}"))?;
    }
    second.unload_namespace("public/default")?;
    lab.pause("broker1")?;
    lab.resume("broker1")?;
    lab.kill("broker1")?;
    // Its session has to end before anyone may take its topics.
    let moved = |index: u32| {
        let partition = format!("{topic}-partition-{index}");
        second.owner(&partition).is_ok_and(|owner| owner == sites[1].service_url)
    };
    eventually("every partition is with the second broker", || (0..8).all(moved));
    lab.restart("broker1")?;
    eventually("both brokers are known", || second.brokers("lab").is_ok_and(|found| found.len() == 2));
    let proxy = lab.proxy()?;
    assert!(proxy.admin().clusters()?.contains(&"lab".to_owned()));
    Ok(())
}

fn eventually(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(90);
    while !holds() {
        assert!(Instant::now() < end, "90 s later it still does not hold that {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
