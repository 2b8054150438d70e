import tempfile
import unittest
from pathlib import Path

import check


class CheckTest(unittest.TestCase):
    def faults(self, **pages):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder).resolve()
            for name, text in pages.items():
                (folder / f"{name}.html").write_text(text, encoding="utf-8")
            return [line.split(": ", 1)[1] for line in check.faults(folder)]

    def test_whole_links(self):
        self.assertEqual([], self.faults(a='<a href="b.html#x">', b='<p id="x"><a href="#x"><a href="https://other">'))

    def test_faults(self):
        self.assertEqual(
            ["b.html#y: no such anchor", "c.html: no such file", "../b.html: no such file", "loads https://other/x.js"],
            self.faults(a='<a href="b.html#y"><a href="c.html"><script src="https://other/x.js"></script>'
                          '<a href="../b.html">',
                        b='<p id="x">'))


if __name__ == "__main__":
    unittest.main()
