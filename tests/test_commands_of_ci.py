"""The files that the commands of the Makefile and of CI name."""

from __future__ import annotations

from tests.cluster.__main__ import WITH_KUBECTL


def test_the_cluster_tests_name_files_that_exist() -> None:
    assert [path for path in WITH_KUBECTL if not path.exists()] == []
