package input_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/input"
)

func TestFormatErrorsSayWhereAndWhat(t *testing.T) {
	for want, e := range map[string]input.FormatError{
		"run.json: is empty":        {File: "run.json", Reason: "is empty"},
		"log.csv:3: want 4 columns": {File: "log.csv", Line: 3, Reason: "want 4 columns"},
		"config.json: hidden_size: -1 is below 1": {
			File: "config.json", Key: "hidden_size",
			Reason: "-1 is below 1",
		},
		"a.jsonl:7: phases[3][1]: want an array": {
			File: "a.jsonl", Line: 7, Key: "phases[3][1]",
			Reason: "want an array",
		},
		"phases[3][1]: want an array, found a boolean": {Key: "phases[3][1]", Reason: "want an array, found a boolean"},
	} {
		require.EqualError(t, &e, want)
	}
}

type unless bool

func (unless) Error() string   { return "an error" }
func (u unless) Usage() bool   { return bool(u) }
func wrapped(err error) error  { return fmt.Errorf("batch 8: %w", err) }
func together(err error) error { return errors.Join(errors.New("another"), err) }

func TestBadInputIsFoundInsideOtherErrors(t *testing.T) {
	for _, err := range []error{&input.FormatError{}, unless(true)} {
		require.True(t, input.IsBadInput(err))
		require.True(t, input.IsBadInput(wrapped(err)))
		require.True(t, input.IsBadInput(together(wrapped(err))))
	}
	for _, err := range []error{nil, errors.New("no space left"), unless(false), wrapped(unless(false))} {
		require.False(t, input.IsBadInput(err))
	}
}

// endless is a reader without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestWhatHasNoEndIsRefused(t *testing.T) {
	_, err := input.ReadAll(endless{}, "pipe")
	require.True(t, input.IsBadInput(err))
	require.ErrorContains(t, err, "pipe: longer than 256 MiB")
}

// A file that is too long is refused by its size, before it is read.
func TestLongFilesAreNotRead(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "long"))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Truncate(input.MaxFile+1))
	_, err = input.ReadAll(f, "long")
	require.ErrorContains(t, err, "long: longer than")
	at, err := f.Seek(0, io.SeekCurrent)
	require.NoError(t, err)
	require.Zero(t, at)
}

func TestLinesOfOtherFilesAreNotQuoted(t *testing.T) {
	require.Equal(t, `"batch-sz"`, input.Quote("batch-sz"))
	for _, line := range []string{"root:*:20228:0:99999:7:::", "$6$salt$hash", strings.Repeat("x", 41)} {
		require.Equal(t, `"..."`, input.Quote(line))
	}
}
