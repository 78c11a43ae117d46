from usd3.training.logs import logs_as_csv


def test_logs_as_one_table(tmp_path):
    for run, version, text in (
        (
            "a",
            0,
            "step,minutes,train/bits_per_element,train/loss,val/bits_per_element\n5,0.1,3.12345678,1,\n5,0.1,,,3\n9,0.2,7,1,\n",
        ),
        ("a", 1, "step,minutes,train/bits_per_element,train/lr,val/bits_per_element\n9,0.3,2,1,\n10,0.3,,1,\n"),
        ("b", 0, "step,val/bits_per_element\n5,4\n"),
        ("silent", 0, "step,minutes,train/loss\n5,1.0,4\n"),
    ):
        folder = tmp_path / run / "logs" / f"version_{version}"
        folder.mkdir(parents=True)
        (folder / "metrics.csv").write_text(text)
    told = logs_as_csv(
        {label: tmp_path / run for label, run in (("a", "a"), ("b, c", "b"), ("d", "silent"), ("e", "none"))}
    )
    assert told.splitlines() == [
        "label,step,minutes,train_bits_per_element,held_out_bits_per_element",
        "a,5,0.1,3.12346,",
        "a,5,0.1,,3",
        "a,9,0.3,2,",  # of the later part
        '"b, c",5,,,4',
    ]
