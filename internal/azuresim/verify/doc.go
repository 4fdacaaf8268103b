// Package verify plays the rules of azuresim against a real subscription, and reports where the
// simulator differs from Azure. Everything that it makes is in one resource group, which is deleted
// at the end. What a killed run has left behind is deleted by the next.
package verify
