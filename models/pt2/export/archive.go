package export

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/vprof/vprof/internal/input"
)

// Limits of a .pt2 archive. The size of the weights in it is not limited, because they are not read.
const (
	mostEntries = 200_000
	mostModel   = 128 << 20
	mostExtra   = 64 << 20
)

// howTo is the end of error messages about files of other kinds. It tells how to make a .pt2 file.
const howTo = "; vprof reads what torch.export.save(torch.export.export(model, args), \"model.pt2\") writes, or " +
	"vprof capture"

// Open reads the exported program of a .pt2 file. Its errors are [*input.FormatError] or errors of reading the file.
func Open(path string) (*Program, error) {
	f, err := input.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &input.FormatError{File: path, Reason: "is not a file" + howTo}
	}
	p, err := Read(f, info.Size())
	if err != nil {
		return nil, &input.FormatError{File: path, Reason: err.Error()}
	}
	return p, nil
}

// Read reads the exported program of a .pt2 archive.
func Read(r io.ReaderAt, size int64) (*Program, error) {
	z, err := zip.NewReader(r, size)
	if err != nil {
		return nil, notArchiveError(r, size)
	}
	if len(z.File) > mostEntries {
		return nil, fmt.Errorf("the archive has %d entries, too many for an exported program; name a file of "+
			"torch.export.save or vprof capture", len(z.File))
	}
	var model, extra *zip.File
	for _, f := range z.File {
		switch {
		case strings.HasSuffix(f.Name, "/models/model.json"):
			model = f
		case strings.HasSuffix(f.Name, "/serialized_exported_program.json"),
			f.Name == "serialized_exported_program.json":
			return nil, errors.New("the program is in the format of torch before 2.7; export it again with a newer " +
				"torch" + howTo)
		case strings.HasSuffix(f.Name, "/extra/vprof.json"):
			extra = f
		}
	}
	if model == nil {
		return nil, notProgramError(z)
	}
	data, err := entryContents(model, mostModel)
	if err != nil {
		return nil, err
	}
	var extraData []byte
	if extra != nil {
		if extraData, err = entryContents(extra, mostExtra); err != nil {
			return nil, err
		}
	}
	return decode(data, extraData)
}

// decode reads the program from models/model.json and extra/vprof.json of a .pt2 archive; extra is nil if it is absent.
func decode(model, extra []byte) (*Program, error) {
	p, err := decodeGraph(model, extra)
	if err != nil || p.Extra == nil {
		return p, err
	}
	for _, f := range p.Extra.First {
		if first, err := decodeGraph(f.Graph, f.Extra); err == nil {
			p.First = append(p.First, first)
		}
	}
	return p, nil
}

func decodeGraph(model, extra []byte) (*Program, error) {
	p, err := Decode(model)
	if err != nil {
		return nil, fmt.Errorf("models/model.json in the archive: %w", err)
	}
	if extra != nil {
		if p.Extra, err = decodeExtra(extra); err != nil {
			return nil, err
		}
	}
	p.model, p.extra = model, extra
	return p, nil
}

// entryContents returns the content of an archive's entry of at most most bytes.
func entryContents(f *zip.File, most uint64) ([]byte, error) {
	tooLarge := fmt.Errorf("%s unpacks to more than %d MiB, more than vprof reads; export a smaller model",
		f.Name, most>>20)
	if f.UncompressedSize64 > most {
		return nil, tooLarge
	}
	r, err := f.Open()
	if err != nil {
		return nil, fmt.Errorf("%s cannot be unpacked: %w; copy the file again, or export the model again", f.Name, err)
	}
	defer r.Close()
	// The size in the zip header may be too small or too large.
	var buf bytes.Buffer
	buf.Grow(int(min(f.UncompressedSize64, f.CompressedSize64*16, most)) + bytes.MinRead)
	n, err := buf.ReadFrom(io.LimitReader(r, int64(most)+1))
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; copy the file again, or export the model again", f.Name, err)
	}
	if uint64(n) > most {
		return nil, tooLarge
	}
	return buf.Bytes(), nil
}

// notArchiveError returns the error for a file that is not a zip archive, with the kind of file that it seems to be.
func notArchiveError(r io.ReaderAt, size int64) error {
	head := make([]byte, 8)
	n, _ := r.ReadAt(head, 0)
	head = head[:n]
	switch {
	case size == 0:
		return errors.New("the file is empty" + howTo)
	case bytes.HasPrefix(head, []byte("PK")):
		return errors.New("the zip archive ends in the middle; copy the file again, or export the model again")
	case bytes.HasPrefix(head, []byte{0x80, 0x02}), bytes.HasPrefix(head, []byte{0x80, 0x04}):
		return errors.New("the file is a pickle (torch.save), which holds weights and no graph" + howTo)
	case n == 8 && string(head[4:]) == "ET12":
		return errors.New("the file is an ExecuTorch program, which has no training graph" + howTo)
	default:
		return errors.New("the file is not an exported program" + howTo)
	}
}

// notProgramError returns the error for a zip archive without an exported program.
func notProgramError(z *zip.Reader) error {
	for _, f := range z.File {
		switch {
		case strings.Contains(f.Name, "/code/") || strings.HasSuffix(f.Name, "/constants.pkl"):
			return errors.New("the file is TorchScript, not a graph of torch.export" + howTo)
		case strings.HasSuffix(f.Name, "/data.pkl") || strings.HasSuffix(f.Name, "/.format_version"):
			return errors.New("the file is a checkpoint (torch.save), which holds weights and no graph" + howTo)
		case strings.Contains(f.Name, "data/aotinductor/"):
			return errors.New("the file is a compiled package (AOTInductor), which has no graph" + howTo)
		}
	}
	return errors.New("the file is a zip archive without models/model.json" + howTo)
}
