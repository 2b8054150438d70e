package microscope_test

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
)

// streamField begins the field of an allocation's stream.
const streamField = "stream="

// eventKind is the kind of an event.
type eventKind byte

// The kinds, as they stand in the first column.
const (
	marked    eventKind = 'm'
	allocated eventKind = 'a'
	freed     eventKind = 'f'
)

// event is one line of a list.
type event struct {
	Kind eventKind
	// ID of the allocation; of allocations and frees.
	ID int
	// Bytes as requested; of allocations.
	Bytes int64
	// Site is where, of allocations; "" where the list has a dash.
	Site program.Site
	// Stream that an allocation was made on.
	Stream program.Stream
	// Phase that ends; of marks.
	Phase program.Phase
}

// readEvents reads an event list. An error names the line. IDs are checked: each is
// allocated once, and freed at most once and only after.
func readEvents(r io.Reader) ([]event, error) {
	var events []event
	live := map[int]bool{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 {
			continue
		}
		e, err := parseEvent(fields)
		if err == nil {
			err = trackLife(live, e)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		events = append(events, e)
	}
	return events, lines.Err()
}

// trackLife notes in live what e allocates or frees. An ID is in live from its allocation on, with false once freed.
func trackLife(live map[int]bool, e event) error {
	alive, known := live[e.ID]
	switch {
	case e.Kind == marked:
	case e.Kind == allocated && known:
		return fmt.Errorf("buffer %d is allocated twice", e.ID)
	case e.Kind == freed && !alive:
		return fmt.Errorf("buffer %d is freed but does not live", e.ID)
	default:
		live[e.ID] = e.Kind == allocated
	}
	return nil
}

func parseEvent(f []string) (event, error) {
	switch {
	case f[0] == "m" && len(f) == 2:
		step, name, ok := strings.Cut(f[1], ":")
		n, err := strconv.Atoi(step)
		if !ok || err != nil || n < -1 || name == "" {
			return event{}, fmt.Errorf("%q is not STEP:PHASE", f[1])
		}
		return event{Kind: marked, Phase: program.Phase{Step: n, Name: name}}, nil
	case f[0] == "a" && (len(f) == 7 || len(f) == 8):
		id, err := strconv.Atoi(f[1])
		if err != nil {
			return event{}, fmt.Errorf("%q is not an ID", f[1])
		}
		bytes, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil || bytes < 0 {
			return event{}, fmt.Errorf("%q is not a number of bytes", f[2])
		}
		site := program.Site{Op: blank(f[3]), Native: blank(f[4]), Node: blank(f[5]), Where: blank(f[6])}
		e := event{Kind: allocated, ID: id, Bytes: bytes, Site: site}
		if len(f) == 8 {
			text, ok := strings.CutPrefix(f[7], streamField)
			n, err := strconv.ParseUint(text, 10, 8)
			if !ok || err != nil {
				return event{}, fmt.Errorf("%q is not %sN", f[7], streamField)
			}
			e.Stream = program.Stream(n)
		}
		return e, nil
	case f[0] == "f" && len(f) == 2:
		id, err := strconv.Atoi(f[1])
		if err != nil {
			return event{}, fmt.Errorf("%q is not an ID", f[1])
		}
		return event{Kind: freed, ID: id}, nil
	}
	return event{}, fmt.Errorf("%q with %d fields is not an event", f[0], len(f))
}

// blank reads a field, of which a dash stands for none.
func blank(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

const toyList = `a 1 8 to_dtype_layout - - -
m -1:model
a 2 693504 mm gpu_reduce MmBackward0 models/toy.go:3:Forward stream=2
f 2
m 0:forward
`

func TestReadUndoesWhatIsWritten(t *testing.T) {
	events, err := readEvents(strings.NewReader(toyList))
	require.NoError(t, err)
	require.Equal(t, []event{
		{Kind: allocated, ID: 1, Bytes: 8, Site: program.Site{Op: "to_dtype_layout"}},
		{Kind: marked, Phase: program.Phase{Step: -1, Name: "model"}},
		{Kind: allocated, ID: 2, Bytes: 693504, Site: program.Site{
			Op: "mm", Native: "gpu_reduce", Node: "MmBackward0",
			Where: "models/toy.go:3:Forward",
		}, Stream: 2},
		{Kind: freed, ID: 2},
		{Kind: marked, Phase: program.Phase{Step: 0, Name: "forward"}},
	}, events)
}

func TestBadEventNamesItsLine(t *testing.T) {
	for list, want := range map[string]string{
		"a 1 8 - - - -\nx":             "line 2: \"x\" with 1 fields is not an event",
		"\n\na 1 8":                    "line 3: \"a\" with 3 fields",
		"a one 8 - - - -":              `line 1: "one" is not an ID`,
		"a 1 -8 - - - -":               `line 1: "-8" is not a number of bytes`,
		"a 1 8 - - - - stream=x":       `line 1: "stream=x" is not stream=N`,
		"a 1 8 - - - - stream=999":     `line 1: "stream=999" is not stream=N`,
		"f 1":                          "line 1: buffer 1 is freed but does not live",
		"f one":                        `line 1: "one" is not an ID`,
		"a 1 8 - - - -\na 1 8 - - - -": "line 2: buffer 1 is allocated twice",
		"a 1 8 - - - -\nf 1\nf 1":      "line 3: buffer 1 is freed but does not live",
		"m forward":                    `line 1: "forward" is not STEP:PHASE`,
		"m -2:forward":                 `line 1: "-2:forward" is not STEP:PHASE`,
		"m 0:":                         `line 1: "0:" is not STEP:PHASE`,
	} {
		_, err := readEvents(strings.NewReader(list))
		require.ErrorContains(t, err, want, list)
	}
}

func FuzzReadEvents(f *testing.F) {
	f.Add(toyList)
	f.Add("f 9999999999999999999")
	f.Fuzz(func(t *testing.T, list string) {
		events, err := readEvents(strings.NewReader(list))
		if err != nil {
			return
		}
		live := 0
		for _, e := range events {
			switch e.Kind {
			case allocated:
				require.GreaterOrEqual(t, e.Bytes, int64(0))
				live++
			case freed:
				live--
			}
			require.GreaterOrEqual(t, live, 0)
		}
	})
}
