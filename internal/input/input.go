// Package input has errors that mean bad input: the user can fix them, in a flag or in a file.
package input

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// MaxFile is the longest file of results, logs or snapshots that is read, in bytes. The decoded content takes a few
// times as much memory.
const MaxFile = 256 << 20

// openFiles counts the inputs that are being read.
var openFiles atomic.Int32

// IsReading reports whether input is being read. A pipe may never end, so a signal must then end the process.
func IsReading() bool { return openFiles.Load() > 0 }

// BeginReading marks input as being read until the function that it returns is called.
func BeginReading() (end func()) {
	openFiles.Add(1)
	return func() { openFiles.Add(-1) }
}

// Quote returns a word of a file in quotes, and "..." for other texts: a file that was named by mistake may be secret.
func Quote(word string) string {
	if len(word) > 40 || strings.ContainsAny(word, ":*!$/") {
		return `"..."`
	}
	return strconv.Quote(word)
}

// File is a file that is being read until it is closed.
type File struct {
	*os.File
	end func()
}

// Close closes the file. It must be called once.
func (f *File) Close() error {
	f.end()
	return f.File.Close()
}

// OpenFile opens a file that the user has named, as [os.Open] does.
func OpenFile(path string) (*File, error) {
	end := BeginReading()
	f, err := os.Open(path)
	if err != nil {
		end()
		return nil, err
	}
	return &File{f, end}, nil
}

// Open calls [OpenFile]; its error is a [*FormatError] if the file cannot be opened.
func Open(path string) (*File, error) {
	f, err := OpenFile(path)
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return nil, &FormatError{File: path, Reason: FileReason(at.Err)}
	}
	return f, err
}

// FileReason returns why a file cannot be used, for a message that names the file.
func FileReason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist"
	case errors.Is(err, syscall.EISDIR):
		return "is a folder, and a file is needed"
	}
	return err.Error()
}

// Message returns the text of an error. If it has an error of the file system, the file stands before [FileReason].
func Message(err error) string {
	text := err.Error()
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		text = strings.Replace(text, at.Error(), at.Path+": "+FileReason(at.Err), 1)
	}
	return text
}

// ReadFile reads a file that the user has named, like [ReadAll].
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadAll(f, path)
}

// edited are contents by path, of files that are not written yet; nil for none.
var edited atomic.Pointer[map[string][]byte]

// Replace makes [ReadUpTo] return these contents in place of files, until the function that it returns is called.
func Replace(contents map[string][]byte) (end func()) {
	edited.Store(&contents)
	return func() { edited.Store(nil) }
}

// ReadUpTo reads at most a number of bytes of a file that the user has named; errors are as in [OpenFile].
func ReadUpTo(path string, most int64) ([]byte, error) {
	if contents := edited.Load(); contents != nil && (*contents)[path] != nil {
		return (*contents)[path], nil
	}
	f, err := OpenFile(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, most))
}

// Decompress decompresses gzip data, whose result must not exceed most bytes.
func Decompress(data []byte, most int64) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(z, most+1))
	if err == nil && int64(len(out)) > most {
		err = fmt.Errorf("unpacked it is longer than %d MiB, the most that vprof reads; record fewer events", most>>20)
	}
	return out, err
}

// ReadAll reads all of r, at most [MaxFile]; name is used in messages. The error is a [*FormatError] if r is longer.
func ReadAll(r io.Reader, name string) ([]byte, error) {
	tooLong := &FormatError{
		File:   name,
		Reason: fmt.Sprintf("longer than %d MiB; cut it, or record fewer events", MaxFile>>20),
	}
	var b bytes.Buffer
	if f, ok := r.(interface{ Stat() (fs.FileInfo, error) }); ok {
		switch info, err := f.Stat(); {
		case err != nil:
		case info.Mode().IsRegular() && info.Size() > MaxFile:
			return nil, tooLong
		case info.Size() <= MaxFile:
			b.Grow(int(info.Size()) + bytes.MinRead) // the end is found without growing
		}
	}
	_, err := b.ReadFrom(io.LimitReader(r, MaxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", name, err)
	case b.Len() > MaxFile:
		return nil, tooLong
	}
	return b.Bytes(), nil
}

// A usageReporter is an error that reports whether it means bad input. Error types that do have a method Usage that
// returns true; they need not import this package.
type usageReporter interface {
	error
	Usage() bool
}

// Errorf returns an error that means bad input, formatted as by [fmt.Errorf].
func Errorf(format string, args ...any) error { return inputError{fmt.Errorf(format, args...)} }

// inputError is an error that means bad input, and that callers do not distinguish from others.
type inputError struct{ error }

// Unwrap returns the wrapped error.
func (e inputError) Unwrap() error { return e.error }

// Usage marks the error as bad input.
func (inputError) Usage() bool { return true }

// IsBadInput reports whether err, or an error that it wraps, means bad input.
func IsBadInput(err error) bool {
	var u usageReporter
	return errors.As(err, &u) && u.Usage()
}

// A FormatError reports invalid contents of a file, and their place.
type FormatError struct {
	// File is the file's name, or what the input is called: "stdin".
	File string
	// Line is counted from 1; 0 if no line in particular is wrong.
	Line int
	// Key is the path of the value that is wrong, such as "phases[3][1]"; "" if all of it is wrong.
	Key string
	// Reason describes what was found, what is expected, and what to do where that helps.
	Reason string
}

// FileErrorf returns a [*FormatError] about a file as a whole.
func FileErrorf(file, format string, args ...any) error {
	return &FormatError{File: file, Reason: fmt.Sprintf(format, args...)}
}

// KeyErrorf returns a [*FormatError] about the value of a key.
func KeyErrorf(file, key, format string, args ...any) error {
	return &FormatError{File: file, Key: key, Reason: fmt.Sprintf(format, args...)}
}

// Error returns "FILE:LINE: KEY: REASON", without the parts that are unknown.
func (e *FormatError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		b.WriteString(":" + strconv.Itoa(e.Line))
	}
	for _, part := range []string{e.Key, e.Reason} {
		if part == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(": ")
		}
		b.WriteString(part)
	}
	return b.String()
}

// Usage marks a damaged file as bad input.
func (*FormatError) Usage() bool { return true }
