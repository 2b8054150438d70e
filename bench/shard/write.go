package shard

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/vprof/vprof/internal/input"
)

// Hash returns a hash of the work's JSON.
func Hash(work any) (string, error) {
	text, err := json.Marshal(work)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

// A File is the file of an unfinished shard. It is not safe for concurrent use.
type File struct {
	header  Header
	path    string // without .part
	f       *os.File
	next    int
	partial json.RawMessage
}

// Open opens an unfinished shard in a folder, or begins one; it creates the folder if needed. It returns nil if the
// shard is complete. The error is bad input if the folder has shards of another plan or version, and another error if a
// process works on the shard.
func Open(dir string, h Header) (*File, error) {
	h.Schema = Schema
	h.From, h.To = Part{h.Shard, h.ShardCount}.Range(h.Units)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	s := &File{header: h, path: filepath.Join(dir, h.file())}
	if whole, err := readHeaderOf(s.path); err == nil {
		return nil, whole.checkEqual(s.path, h)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var err error
	if s.f, err = os.OpenFile(s.path+unfinishedSuffix, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	if err := s.resume(); err != nil {
		return nil, errors.Join(err, s.f.Close())
	}
	return s, nil
}

// checkEqual returns an error unless both headers belong to the same shard of the same plan.
func (h Header) checkEqual(path string, other Header) error {
	switch {
	case h.Tool != other.Tool:
		return input.Errorf("%s: created by vprof %s, and this is %s; use another folder, or remove the file", path,
			toolVersion(h.Tool), toolVersion(other.Tool))
	case h.Plan != other.Plan:
		return input.Errorf("%s: belongs to another plan (%s of %d units, not %s of %d units: other flags, files or "+
			"models); use another folder, or remove the file", path, h.Verb, h.Units, other.Verb, other.Units)
	}
	return nil
}

// resume reads the lines of an earlier process and cuts off an incomplete last one.
func (s *File) resume() error {
	if err := lock(s.f); err != nil {
		return fmt.Errorf("%s: another process is writing this shard; wait for it, or stop it", s.path+unfinishedSuffix)
	}
	s.next = s.header.From
	r := newReader(s.path+unfinishedSuffix, s.f)
	was, err := r.readHeader()
	if errors.Is(err, io.EOF) || errors.Is(err, errTruncated) {
		return s.writeHeader()
	}
	if err == nil {
		err = was.checkEqual(s.path+unfinishedSuffix, s.header)
	}
	if err != nil {
		return err
	}
	for {
		at := r.offset
		l, err := r.readLine()
		switch {
		case errors.Is(err, io.EOF) || isTruncation(err):
			if err := s.f.Truncate(at); err != nil {
				return err
			}
			_, err := s.f.Seek(at, io.SeekStart)
			return err
		case err != nil:
			return err
		case l.Unit != nil && l.Result != nil:
			if *l.Unit != s.next {
				return r.formatError(fmt.Sprintf("unit %d stands where %d should", *l.Unit, s.next))
			}
			s.next += l.Units
			s.partial = nil
		case l.Partial != nil:
			s.partial = l.Partial
		}
	}
}

// isTruncation reports whether an error is caused by an incomplete last line: its end is missing, or it was damaged
// when the disk was full or lost power.
func isTruncation(err error) bool {
	return errors.Is(err, errTruncated) || errors.As(err, new(*input.FormatError))
}

func (s *File) writeHeader() error {
	if err := s.f.Truncate(0); err != nil {
		return err
	}
	if _, err := s.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return s.write(s.header)
}

// write writes a line and flushes it to disk.
func (s *File) write(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	at, err := s.f.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	_, err = s.f.Write(append(text, '\n'))
	if err == nil {
		err = s.f.Sync()
	}
	if err != nil {
		// Remove the part of a line that was written.
		_, seekErr := s.f.Seek(at, io.SeekStart)
		return errors.Join(err, s.f.Truncate(at), seekErr)
	}
	return nil
}

// Next returns the first unfinished unit, or [File.End] if all are finished. partial is the unit's partial result from
// an earlier process; nil if there is none.
func (s *File) Next() (unit int, partial json.RawMessage) { return s.next, s.partial }

// End returns the unit after the shard's last one.
func (s *File) End() int { return s.header.To }

// Put writes the result of the next units.
func (s *File) Put(units int, result any) error {
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	if err := s.write(line{Unit: new(s.next), Units: units, Result: text}); err != nil {
		return err
	}
	s.next, s.partial = s.next+units, nil
	return nil
}

// PutPartial writes a partial result of the next unit.
func (s *File) PutPartial(partial any) error {
	text, err := json.Marshal(partial)
	if err != nil {
		return err
	}
	return s.write(line{Unit: new(s.next), Partial: text})
}

// Fail writes the reason why the work stops, if that is possible, and closes the file.
func (s *File) Fail(cause error, code int, host string, at time.Time) error {
	return errors.Join(s.write(line{Failure: &Failure{cause.Error(), code, at, host}}), s.f.Close())
}

// Finish writes the end of the shard and renames its file to the final name.
func (s *File) Finish() error {
	if s.next != s.header.To {
		return errors.Join(fmt.Errorf("%s: the results of %d units are missing; run this shard again",
			s.path, s.header.To-s.next), s.f.Close())
	}
	err := s.write(line{Done: new(s.header.To - s.header.From)})
	if err := errors.Join(err, s.f.Close()); err != nil {
		return err
	}
	return os.Rename(s.path+unfinishedSuffix, s.path)
}

// readHeaderOf reads the first line of a file.
func readHeaderOf(path string) (Header, error) {
	f, err := os.Open(path)
	if err != nil {
		return Header{}, err
	}
	defer f.Close()
	r := &reader{file: path, r: bufio.NewReaderSize(f, 4096)}
	h, err := r.readHeader()
	if errors.Is(err, io.EOF) || errors.Is(err, errTruncated) {
		err = r.formatError("half-written: it has no header")
	}
	return h, err
}
