package hfconfig

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vprof/vprof/internal/input"
)

// TeacherMark separates the file of a student and the file of its teacher in the name of a
// model: hf:student.json,teacher=teacher.json.
const TeacherMark = "," + teacherKey + "="

// teacherKey is the key of a teacher's configuration in its student's.
const teacherKey = "teacher"

// withTeacher puts a teacher's configuration into its student's.
func withTeacher(path string, data []byte, teacher string) ([]byte, error) {
	if info, err := os.Stat(teacher); err == nil && info.IsDir() {
		teacher = filepath.Join(teacher, usualName)
	}
	teacher = located(teacher)
	other, err := readModel(teacher)
	if err != nil {
		return nil, err
	}
	if _, err := newReader(teacher, other); err != nil {
		return nil, err
	}
	r, err := newReader(path, data)
	if err != nil {
		return nil, err
	}
	r.raw[teacherKey] = other
	return json.Marshal(r.raw)
}

// readModel reads the description of a model.
func readModel(path string) ([]byte, error) {
	data, err := read(path)
	if missing, ok := errors.AsType[*fs.PathError](err); ok {
		if config, known := OfHub(path); known {
			return config, nil
		}
		return nil, &input.FormatError{File: path, Reason: missing.Err.Error() + howToGet(path)}
	}
	return data, err
}

// teacher reads the model that another learns from; nil if there is none.
func (r *reader) teacher() (*architecture, error) {
	if _, ok := r.raw[teacherKey]; !ok {
		return nil, nil
	}
	t := r.sub(teacherKey)
	_, f, err := t.family()
	if err != nil {
		return nil, err
	}
	t.aliases = f.aliases
	t.common()
	t.weights()
	return new(f.read(t)), nil
}
