package replay_test

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/program"
)

// script builds programs by name of buffer.
type script struct {
	program.Program
	buffers map[string]uint32
}

func newScript() *script { return &script{buffers: map[string]uint32{}} }

func (s *script) emit(k program.Kind, arg uint32) {
	s.Instructions = append(s.Instructions, program.Instruction{Kind: k, Arg: arg})
}

func (s *script) alloc(name string, class program.Class, bytes int64) {
	id := uint32(len(s.Buffers))
	s.buffers[name] = id
	s.Sites = append(s.Sites, program.Site{Op: name})
	s.Buffers = append(s.Buffers, program.Buffer{Bytes: bytes, Class: class, Site: id})
	s.emit(program.Alloc, id)
}

func (s *script) free(name string) { s.emit(program.Free, s.buffers[name]) }

func (s *script) mark(step int, name string) {
	s.Phases = append(s.Phases, program.Phase{Step: step, Name: name})
	s.emit(program.MarkPhase, uint32(len(s.Phases)-1))
}

func classNamed(tb testing.TB, name string) program.Class {
	for c := range program.Class(program.NumClasses) {
		if strings.ReplaceAll(c.String(), " ", "-") == name || c == program.Batch && name == "batch" {
			return c
		}
	}
	require.Fail(tb, "no such class", name)
	return 0
}

// parse reads the line format of testdata/residual-net.txt; marks have the form of event lists.
func parse(tb testing.TB, text string) *program.Program {
	s := newScript()
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		switch f[0] {
		case "+":
			bytes, err := strconv.ParseInt(f[3], 10, 64)
			require.NoError(tb, err)
			s.alloc(f[2], classNamed(tb, f[1]), bytes)
		case "-":
			for _, name := range f[1:] {
				s.free(name)
			}
		case "m":
			var p program.Phase
			_, err := fmt.Sscanf(f[1], "%d:%s", &p.Step, &p.Name)
			require.NoError(tb, err)
			s.mark(p.Step, p.Name)
		}
	}
	return &s.Program
}

// recordedList reads a list of allocations and frees recorded from PyTorch:
// "a ID BYTES OP NATIVE NODE WHERE", "f ID", "m STEP:PHASE".
func recordedList(tb testing.TB, name string) *program.Program {
	f, err := os.Open("testdata/" + name + ".txt.gz")
	require.NoError(tb, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(tb, err)
	var text strings.Builder
	for lines := bufio.NewScanner(z); lines.Scan(); {
		f := strings.Fields(lines.Text())
		switch f[0] {
		case "a":
			fmt.Fprintf(&text, "+ temporaries %s %s\n", f[1], f[2])
		case "f":
			fmt.Fprintf(&text, "- %s\n", f[1])
		case "m":
			fmt.Fprintf(&text, "m %s\n", f[1])
		}
	}
	return parse(tb, text.String())
}
