package jsonkeys

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestKeysThatStandTwiceAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"b":{"a":1},"c":[{"a":1},{"a":2}]}`: "",
		`{"a":1,"a":1}`:                 "the key a appears twice; remove one",
		`{"x":[1,{"b":{"c":0,"c":1}}]}`: "the key x.1.b.c appears twice; remove one",
		`{"\u0061":1,"a":1}`:            "the key a appears twice; remove one",
		`[1, 2`:                         "",
		`{"a":1,`:                       "",
		``:                              "",
		strings.Repeat("[", 20000):      "", // the decoder's own limit is 10,000
	} {
		err := CheckUnique([]byte(text))
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.EqualError(t, err, want)
	}
}

func FuzzUnique(f *testing.F) {
	f.Add([]byte(`{"a":1,"b":[{"a":1},null,"x"]}`))
	f.Fuzz(func(_ *testing.T, data []byte) { _ = CheckUnique(data) })
}
