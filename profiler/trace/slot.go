package trace

// A Slot stands for an entry of a Python dict that is passed to calls and filled by them.
// Frames and checkpoints hold it as they hold a tensor; when the last of them releases it, the
// tensor in it is released.
type Slot struct{ handle *Tensor }

// NewSlot binds a name to an empty slot.
func (f *Frame) NewSlot() *Slot { return &Slot{f.Let(f.t.Empty(F32, 0))} }

// Handle is what a checkpoint captures to keep the slot.
func (s *Slot) Handle() *Tensor { return s.handle }

// Fill puts x in the place of what the slot holds.
func (s *Slot) Fill(x *Tensor) {
	if s.handle.tape.hooks.muted {
		return
	}
	old := s.handle.view
	s.handle.view = x.retain()
	if old != nil {
		old.release()
	}
}

// Value is what the slot holds.
func (s *Slot) Value() *Tensor { return s.handle.view }
