"""The operations of each public class, one class a file."""
