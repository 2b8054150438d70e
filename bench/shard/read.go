package shard

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vprof/vprof/internal/input"
)

// maxLineBytes is the length limit of a line in bytes. The longest lines hold a unit with a model's description.
const maxLineBytes = 256 << 20

// errTruncated reports a line without an end: its writer was killed.
var errTruncated = errors.New("the last line is cut off")

// reader reads the lines of a file.
type reader struct {
	file string
	r    *bufio.Reader
	// offset is the byte position of the next line, number its line number.
	offset int64
	number int
}

func newReader(file string, r io.Reader) *reader {
	return &reader{file: file, r: bufio.NewReaderSize(r, 64<<10)}
}

func (r *reader) formatError(reason string) error {
	return &input.FormatError{File: r.file, Line: r.number, Reason: reason}
}

// readText reads a line. The error is [io.EOF] at the end of the file, and [errTruncated] for a line without a line
// end.
func (r *reader) readText() ([]byte, error) {
	var text []byte
	for {
		piece, err := r.r.ReadSlice('\n')
		text = append(text, piece...)
		switch {
		case len(text) > maxLineBytes:
			return nil, r.formatError(fmt.Sprintf("longer than %d MiB", maxLineBytes>>20))
		case err == nil:
			r.offset += int64(len(text))
			r.number++
			return text, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(text) > 0:
			return nil, errTruncated
		default:
			return nil, err
		}
	}
}

func (r *reader) readHeader() (Header, error) {
	var h Header
	text, err := r.readText()
	if err != nil {
		return h, err
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return h, r.formatError("not the header of a shard: " + err.Error())
	}
	if err := h.check(); err != nil {
		return h, r.formatError("not a shard of vprof: " + err.Error())
	}
	return h, nil
}

func (r *reader) readLine() (line, error) {
	var l line
	text, err := r.readText()
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(text, &l); err != nil {
		return l, r.formatError("not a line of a shard: " + err.Error())
	}
	if l.Unit != nil && l.Result != nil && l.Units < 1 {
		return l, r.formatError("a result of no unit")
	}
	return l, nil
}

// State is the progress of a shard.
type State struct {
	Shard int
	// Done is the number of finished units, Units the number of all.
	Done, Units int
	Complete    bool
	// Running reports whether another process works on the shard: on this machine, or on one with the same file locks.
	Running bool
	// Failure is the last failure; nil if a unit was finished after it.
	Failure *Failure
}

// A Set holds the states of a folder's shards.
type Set struct {
	Plan
	ShardCount int
	// First is the header of the first shard, whose Common is the same in all.
	First         Header
	dir           string
	completePaths []string // file by shard; empty is missing
	states        []State
}

// A FolderError reports an invalid folder of shards.
type FolderError struct{ Dir, Reason string }

func (e *FolderError) Error() string { return e.Dir + ": " + e.Reason }

// Usage marks the error as bad input.
func (*FolderError) Usage() bool { return true }

// ReadDir reads the states of a folder's shards. It returns bad input if they belong to different plans or versions of
// vprof, an [*input.FormatError] if a file is not a shard, and a [*FolderError] if there is none.
func ReadDir(dir string) (*Set, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	s := &Set{dir: dir}
	first := ""
	for _, e := range entries {
		name, part := strings.CutSuffix(e.Name(), unfinishedSuffix)
		if ok, _ := filepath.Match("shard-*-of-*.jsonl", name); !ok || e.IsDir() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		h, err := readHeaderOf(path)
		var damaged *input.FormatError
		if part && errors.As(err, &damaged) && damaged.Line == 0 {
			continue // it was begun and no more
		}
		if err != nil {
			return nil, err
		}
		if first == "" {
			first = path
			s.Plan, s.ShardCount, s.First = h.Plan, h.ShardCount, h
			s.completePaths, s.states = make([]string, h.ShardCount), make([]State, h.ShardCount)
			for i := range s.states {
				from, to := Part{i, h.ShardCount}.Range(h.Units)
				s.states[i] = State{Shard: i, Units: to - from}
			}
		}
		switch {
		case h.Tool != s.Tool:
			return nil, input.Errorf("%s: created by vprof %s, but %s by %s; run the older shards again, with one "+
				"version for all", path, toolVersion(h.Tool), filepath.Base(first), toolVersion(s.Tool))
		case h.Plan != s.Plan || h.ShardCount != s.ShardCount:
			return nil, input.Errorf("%s: belongs to another plan than %s (%s of %d units in %d shards, not %s of %d "+
				"units in %d shards); use another folder", path, filepath.Base(first), h.Verb, h.Units, h.ShardCount,
				s.Verb, s.Units, s.ShardCount)
		}
		state := &s.states[h.Shard]
		switch {
		case !part:
			s.completePaths[h.Shard] = path
			*state = State{Shard: h.Shard, Done: state.Units, Units: state.Units, Complete: true}
		case !state.Complete:
			if err := state.readFrom(path, h); err != nil {
				return nil, err
			}
		}
	}
	if first == "" {
		return nil, &FolderError{dir, "has no shards (shard-i-of-n.jsonl); make some with --shard i/n --into " + dir}
	}
	return s, nil
}

// readFrom reads the progress from the file of an unfinished shard.
func (s *State) readFrom(path string, h Header) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it has just become whole
	}
	if err != nil {
		return err
	}
	defer f.Close()
	s.Running = isLocked(f)
	r := newReader(path, f)
	if _, err := r.readHeader(); err != nil {
		return err
	}
	for {
		l, err := r.readLine()
		switch {
		case errors.Is(err, io.EOF) || isTruncation(err):
			return nil
		case err != nil:
			return err
		case l.Failure != nil:
			s.Failure = l.Failure
		case l.Unit != nil && l.Result != nil:
			s.Done, s.Failure = min(*l.Unit+l.Units, h.To)-h.From, nil
		}
	}
}

// States returns the states of all shards.
func (s *Set) States() []State { return s.states }

// An IncompleteError lists the missing shards.
type IncompleteError struct {
	Dir        string
	ShardCount int
	// Missing are the shards that have not begun, Unfinished those in work.
	Missing    []int
	Unfinished []State
}

func (e *IncompleteError) Error() string {
	var words []string
	if len(e.Missing) > 0 {
		words = append(words,
			fmt.Sprintf("missing: shard %s of %d", strings.Join(Ranges(e.Missing), ", "), e.ShardCount))
	}
	for i, s := range e.Unfinished {
		if i == 5 {
			words = append(words, fmt.Sprintf("and %d more unfinished", len(e.Unfinished)-i))
			break
		}
		words = append(words, s.String())
	}
	return e.Dir + ": " + strings.Join(words, "; ") + "; run these again, they go on where they were"
}

// Usage marks the error as bad input.
func (*IncompleteError) Usage() bool { return true }

// String describes the progress of the shard.
func (s State) String() string {
	text := fmt.Sprintf("shard %d has %d of %d units", s.Shard, s.Done, s.Units)
	if s.Running {
		return text + " and is being worked on"
	}
	if f := s.Failure; f != nil {
		text += " and failed"
		if f.Host != "" {
			text += " on " + f.Host
		}
		text += ": " + f.Reason
	}
	return text
}

// Incomplete returns an [*IncompleteError] if shards are missing or unfinished.
func (s *Set) Incomplete() error {
	e := &IncompleteError{Dir: s.dir, ShardCount: s.ShardCount}
	for _, state := range s.states {
		switch {
		case state.Complete || state.Units == 0:
		case state.Done == 0 && state.Failure == nil && !state.Running:
			e.Missing = append(e.Missing, state.Shard)
		default:
			e.Unfinished = append(e.Unfinished, state)
		}
	}
	if len(e.Missing)+len(e.Unfinished) == 0 {
		return nil
	}
	return e
}

// Results passes the results of all units to each, in the order of the plan. It opens one shard at a time. The error is
// from [Set.Incomplete], an [*input.FormatError], or both.
func (s *Set) Results(each func(unit, units int, result json.RawMessage) error) error {
	if err := s.Incomplete(); err != nil {
		return err
	}
	for i, path := range s.completePaths {
		if path == "" {
			continue // a shard without units
		}
		if err := s.results(i, path, each); err != nil {
			return err
		}
	}
	return nil
}

func (s *Set) results(shard int, path string, each func(unit, units int, result json.RawMessage) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := newReader(path, f)
	h, err := r.readHeader()
	if err != nil {
		return err
	}
	if h.Shard != shard || h.Plan != s.Plan {
		return r.formatError("it has changed while it was read")
	}
	next := h.From
	for {
		l, err := r.readLine()
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, errTruncated):
			return r.formatError(fmt.Sprintf("half-written: it ends after %d of %d units; remove it and run shard %d "+
				"again", next-h.From, h.To-h.From, shard))
		case err != nil:
			return err
		case l.Done != nil:
			if next != h.To {
				return r.formatError(fmt.Sprintf("it has %d of %d units; remove it and run shard %d again", next-h.From,
					h.To-h.From, shard))
			}
			return nil
		case l.Unit == nil || l.Result == nil:
			continue
		case *l.Unit != next || l.Units > h.To-next:
			return r.formatError(fmt.Sprintf("unit %d stands where %d should; remove it and run shard %d again",
				*l.Unit, next, shard))
		}
		if err := each(next, l.Units, l.Result); err != nil {
			return err
		}
		next += l.Units
	}
}
