package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/renameio/v2"
)

// Pages are JSON Lines of reports in several files of a folder, each at most as large
// as a reader wants, but for one report that is larger: page-0001.jsonl and so on. A
// page is there when it is whole.
type Pages struct {
	Dir string
	// Size is that of a page, bytes.
	Size int64

	page    int
	file    *renameio.PendingFile
	out     *bufio.Writer
	written int64
}

// Write adds a report.
func (p *Pages) Write(r *Report) error {
	var lines []byte
	for _, l := range r.Lines() {
		text, err := json.Marshal(l)
		if err != nil {
			return err
		}
		lines = append(append(lines, text...), '\n')
	}
	if p.file != nil && p.written+int64(len(lines)) > p.Size {
		if err := p.end(); err != nil {
			return err
		}
	}
	if p.file == nil {
		if err := p.begin(); err != nil {
			return err
		}
	}
	p.written += int64(len(lines))
	_, err := p.out.Write(lines)
	return err
}

func (p *Pages) begin() error {
	if err := os.MkdirAll(p.Dir, 0o755); err != nil {
		return err
	}
	p.page++
	var err error
	if p.file, err = renameio.NewPendingFile(filepath.Join(p.Dir, fmt.Sprintf("page-%04d.jsonl", p.page)), renameio.WithPermissions(0o644)); err != nil {
		return err
	}
	p.out, p.written = bufio.NewWriterSize(p.file, 1<<20), 0
	return nil
}

func (p *Pages) end() error {
	f := p.file
	p.file = nil
	if err := p.out.Flush(); err != nil {
		return errors.Join(err, f.Cleanup())
	}
	return f.CloseAtomicallyReplace()
}

// Close ends the last page; after a failure it is given up. Pages of an earlier, longer
// result are removed.
func (p *Pages) Close(failure error) error {
	if p.file != nil && failure != nil {
		return p.file.Cleanup()
	}
	if p.file != nil {
		if err := p.end(); err != nil {
			return err
		}
	}
	for n := p.page + 1; failure == nil; n++ {
		err := os.Remove(filepath.Join(p.Dir, fmt.Sprintf("page-%04d.jsonl", n)))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
