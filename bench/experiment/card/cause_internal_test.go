package card

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCauseSaysWhere(t *testing.T) {
	const traceback = "Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    import b\n" +
		"  File \"b.py\", line 27, in <module>\n    assert timm.__version__ == \"0.3.2\"\n           ^^^^\nAssertionError\n"
	require.Equal(t, `AssertionError at b.py:27 (assert timm.__version__ == "0.3.2")`,
		failureCause("AssertionError: ", traceback))
	require.Equal(t, "ValueError: no", failureCause("ValueError: no\nmore", ""))
}
